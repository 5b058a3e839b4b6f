"""The store: the only truth about experiments and their rounds; every query is a function taking a Session."""
