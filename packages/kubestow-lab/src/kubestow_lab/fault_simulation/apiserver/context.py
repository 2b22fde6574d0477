"""What all processes of one simulation share."""

from __future__ import annotations

from dataclasses import dataclass

from kubestow.testing.virtual_time import VirtualClock
from kubestow_lab.fault_simulation.apiserver.outages import Outages
from kubestow_lab.fault_simulation.apiserver.server import SimulatedServer
from kubestow_lab.fault_simulation.faults import Faults
from kubestow_lab.fault_simulation.marks import Marks
from kubestow_lab.fault_simulation.trace import Trace


@dataclass(frozen=True)
class SimulationContext:
    """The server and its outages, virtual time, the faults, the trace, and the marks that have been reached."""

    server: SimulatedServer
    outages: Outages
    clock: VirtualClock
    faults: Faults
    trace: Trace
    marks: Marks
