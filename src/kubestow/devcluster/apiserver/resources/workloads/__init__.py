"""Kinds that create pods: their defaults, validation and status rules."""
