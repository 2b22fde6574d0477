"""What all processes of one simulation share."""

from __future__ import annotations

from dataclasses import dataclass

from kubestow.testing.virtual_time import VirtualClock
from tests.fault_simulation.apiserver.server import SimulatedServer
from tests.fault_simulation.faults import Faults
from tests.fault_simulation.trace import Trace

__all__ = ["SimulationContext"]


@dataclass(frozen=True)
class SimulationContext:
    """The server, virtual time, the faults, and the trace."""

    server: SimulatedServer
    clock: VirtualClock
    faults: Faults
    trace: Trace
