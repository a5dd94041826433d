"""Every record of a topic, by exact offset, kept in Delta."""
