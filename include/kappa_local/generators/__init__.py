"""Generated records of the scenarios."""
