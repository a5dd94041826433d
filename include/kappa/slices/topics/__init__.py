"""What a slice sends, and to which topics."""
