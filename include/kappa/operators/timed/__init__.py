"""Operators by event time."""
