"""What proves a replay: verdicts, certificates and their terms."""
