"""``python -m kappa`` is ``kappa``."""

from kappa.cli import main

main()
