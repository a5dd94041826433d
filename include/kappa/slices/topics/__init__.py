"""The records that a slice sends, and their topics."""
