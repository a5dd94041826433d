"""Environments: what is installed for a Python interpreter, as a value with an id; the interpreters of a host."""
