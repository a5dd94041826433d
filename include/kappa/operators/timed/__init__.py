"""Operators that go by event time."""
