"""Rows of an interval that a live epoch replaces by others, which were computed for it."""
