"""Wire formats in both directions: values and keys of Kafka records as rows, and rows as records."""
