"""The rows that a step returns: compared with what its topology declares."""
