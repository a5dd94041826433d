"""What no epoch needs any more, and its removal."""
