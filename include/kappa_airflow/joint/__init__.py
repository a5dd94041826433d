"""Tasks of DAGs that move several topologies at once."""
