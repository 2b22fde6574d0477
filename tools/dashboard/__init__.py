"""Tools for the dashboard."""
