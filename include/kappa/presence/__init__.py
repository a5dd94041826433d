"""Signs of life of a process."""
