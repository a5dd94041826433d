"""Files, topics and groups that no epoch needs any more, and their removal."""
