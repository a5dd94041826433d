"""Ratios measured side by side in one run, on the product's own paths: ``python -m benchmarks --help``."""
