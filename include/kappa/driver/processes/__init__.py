"""Drivers as processes of a host."""
