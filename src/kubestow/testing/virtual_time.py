"""The event loop with virtual time that simulations run on, for tests (see :mod:`kubestow.simulation.virtual_time`)."""

from kubestow.simulation.virtual_time import Deadlock, VirtualClock, VirtualTimeLoop, run

__all__ = ["Deadlock", "VirtualClock", "VirtualTimeLoop", "run"]
