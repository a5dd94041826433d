"""Signals of a driver to the outside: metrics for Prometheus, notices for a webhook."""
