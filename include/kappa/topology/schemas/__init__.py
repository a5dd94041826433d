"""What a source or an output says about the schemas of its records."""
