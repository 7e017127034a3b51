"""`python -m shoal`, for `shoal`."""

from .cli import entry

entry()
