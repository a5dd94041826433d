"""What several tests build on; each module says what it gives."""
