"""The records of a slice: which they are, and how they become rows."""
