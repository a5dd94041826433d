"""Spark as Kappa uses it: session, sources, parsing. No Kafka client."""
