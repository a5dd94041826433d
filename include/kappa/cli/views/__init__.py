"""Commands that show and change nothing."""
