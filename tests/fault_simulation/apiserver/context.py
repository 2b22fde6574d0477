"""What all processes of one simulation share."""

from __future__ import annotations

from dataclasses import dataclass

from kubestow.testing.virtual_time import VirtualClock
from tests.fault_simulation.apiserver.outages import Outages
from tests.fault_simulation.apiserver.server import SimulatedServer
from tests.fault_simulation.faults import Faults
from tests.fault_simulation.scheduler.recording import Recording
from tests.fault_simulation.trace import Trace


@dataclass(frozen=True)
class SimulationContext:
    """The server and its outages, virtual time, the faults, and the trace.

    ``recordings`` gets one of each start of a process; None if none is recorded.
    """

    server: SimulatedServer
    outages: Outages
    clock: VirtualClock
    faults: Faults
    trace: Trace
    recordings: list[Recording] | None = None
