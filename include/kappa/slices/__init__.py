"""The protocol: one slice from planned to committed."""
