"""Gangs: a placement of a whole pod group if there is any, or the proof that there is none."""
