"""Placements of gangs."""
