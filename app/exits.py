"""Exit codes of the fedarena command, the same for all of its parts."""

OK = 0
FAILED = 1
"""It went wrong: nobody answers, a download broke off, an experiment failed."""
BAD_INPUT = 2
"""What was asked cannot be done; typer's own code for options it does not know."""
DIVERGED = 3
"""The training diverged."""
SERVER_FAILED = 4
"""The server failed (500), or is too busy (429, 503): the same command may be right."""
INTERRUPTED = 130
"""Ctrl-C, as shells have it."""
