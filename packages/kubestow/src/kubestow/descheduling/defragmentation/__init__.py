"""Defragmentation: plans of moves that free nodes for a gang, simulated before and while they are carried out."""
