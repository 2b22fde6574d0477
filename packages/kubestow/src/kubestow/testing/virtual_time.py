"""The event loop with virtual time that simulations run on, for tests (see :mod:`kubestow.engine.virtual_time`)."""

from kubestow.engine.virtual_time import Deadlock, VirtualClock, VirtualTimeLoop, run

__all__ = ["Deadlock", "VirtualClock", "VirtualTimeLoop", "run"]
