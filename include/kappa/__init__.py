"""Kappa: change the code of a running stream and recompute its history safely."""

__version__ = "0.1.0"
