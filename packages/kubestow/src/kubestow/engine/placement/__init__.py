"""Placements that solvers find: what they can describe, and whether the engine accepts what they found."""
