"""Delta tables: written, read, kept and removed."""
