"""Delta tables: what is written to them, read of them and kept of them."""
