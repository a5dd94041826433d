"""The same work on other engines, for comparison."""
