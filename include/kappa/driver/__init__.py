"""The one process of an epoch: what comes next, until nothing does."""
