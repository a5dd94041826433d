"""The proof of a replay: verdicts, certificates and their terms."""
