"""Replays as values: no Spark, no Kafka, no Airflow, no clock, no environment."""
