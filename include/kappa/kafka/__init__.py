"""Kafka as Kappa uses it. No Spark."""
