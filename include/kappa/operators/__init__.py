"""Transforms that a step is made of: DataFrame in, DataFrame out, nothing else touched."""

from kappa.operators.records import newest, running_total

__all__ = ["newest", "running_total"]
