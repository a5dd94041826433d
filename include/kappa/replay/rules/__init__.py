"""Objections to a plan, a cutover, an upgrade or a backfill: one function per rule. Pure."""
