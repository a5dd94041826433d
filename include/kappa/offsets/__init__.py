"""Positions in the log: offsets, ranges, cuts, coverage. Pure arithmetic."""
