"""Tasks of DAGs that compute an epoch."""
