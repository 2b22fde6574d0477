"""Tuning: a search over plugin weights and arguments for configurations that no other one beats in all objectives."""
