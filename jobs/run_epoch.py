"""Runs the driver of an epoch in the foreground, as `python -m kappa.driver` does: `--topology NAME --epoch NUMBER`."""

from kappa.driver.__main__ import main

main()
