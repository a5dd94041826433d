"""Kappa inside Airflow: operators, triggers and forms; importing it needs neither Spark, Kafka nor a lake."""
