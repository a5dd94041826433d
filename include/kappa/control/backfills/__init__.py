"""Backfills: what they replace, and how."""
