"""What speaks for and against a plan, a cutover, an upgrade, a backfill: one function a rule. Pure."""
