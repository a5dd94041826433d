"""The declared schemas of the records of a source or an output."""
