"""``python -m kappa`` is ``kappa``."""

from kappa.cli import entry

entry()
