"""Asset events for what became live."""
