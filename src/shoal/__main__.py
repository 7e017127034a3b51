"""`python -m shoal`, for `shoal`."""

from .cli.main import entry

entry()
