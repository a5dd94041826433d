"""Changes of a database as Debezium sends them."""
