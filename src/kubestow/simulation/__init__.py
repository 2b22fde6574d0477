"""The scheduler offline: replay of recorded decisions on an in-memory cluster.

:mod:`.recorded_cases` reads cases, :mod:`.replay` schedules their pods and compares every result. Controllers that act
between two decisions (:mod:`.resource_claims`, :mod:`.volume_controller`) complete immediately. Nothing here does
network I/O or reads the wall clock.
"""
