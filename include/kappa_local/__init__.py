"""A Kafka broker and Airflow on one machine, and generated records: for demonstrations, tests and a first look."""
