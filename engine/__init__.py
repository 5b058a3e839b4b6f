"""The federated-learning engine: runs one experiment from its spec, with no web, queue or database."""
