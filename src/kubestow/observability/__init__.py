"""Metrics, health and logging."""
