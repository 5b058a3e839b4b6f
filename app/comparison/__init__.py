"""What a comparison computes on the server: groups of seeds, curves, tests of significance, printed figures."""
