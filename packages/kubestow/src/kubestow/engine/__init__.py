"""The engine: the scheduler's decisions without a living scheduler, for files, virtual time and explanations."""
