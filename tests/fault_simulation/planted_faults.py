"""Faults of concurrency and protocol, planted into the scheduler one at a time, and how many seeds find each.

``python -m tests.fault_simulation.find_planted_faults --limit 500`` runs the seeds of each fault until a rule is
broken, and prints the table of benchmarks/PLANTED_FAULTS.md. A fault that no seed finds is a rule that is missing, or
does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass

from kubestow_lab.fault_simulation.shrinking import rule_of
from kubestow_lab.fault_simulation.simulation import run_scenario
from tests.fault_simulation.faults_of_binding import BINDINGS, CACHE, SHUTDOWN
from tests.fault_simulation.faults_of_connections import EXTENDERS, LEASES, RECORDS, WATCHES
from tests.fault_simulation.faults_of_preemption import DEVICES, GANGS, PERMIT, PREEMPTION, VOLUMES
from tests.fault_simulation.faults_of_queue import EVENTS, GROUPS, QUEUE

#: The faults by what they are faults of.
AREAS = {
    "Events that requeue pods": EVENTS,
    "Queue": QUEUE,
    "Groups as entities of the queue": GROUPS,
    "Cache, assuming and forgetting": CACHE,
    "Bindings, status patches and events": BINDINGS,
    "Shutdown": SHUTDOWN,
    "Preemption and nominations": PREEMPTION,
    "Permit and PreBind": PERMIT,
    "Gangs": GANGS,
    "Devices": DEVICES,
    "Volumes": VOLUMES,
    "Lists, watches and requests": WATCHES,
    "Leader election": LEASES,
    "Extenders": EXTENDERS,
    "Flight records": RECORDS,
}
FAULTS = [fault for area in AREAS.values() for fault in area]


@dataclass(frozen=True)
class Found:
    """How many seeds found a fault, None if none did, and the rule that was broken."""

    number: int
    seeds: int | None
    rule: str = ""


def find(number: int, limit: int, first: int = 1) -> Found:
    """Run the seeds of a fault, by its position, from the ``first`` on until a rule is broken."""
    fault = FAULTS[number]
    with fault.plant():
        for seed in range(first, limit + 1):
            try:
                violations = run_scenario(fault.scenario(seed)).violations
            except Exception as error:  # what a planted fault leads to may stop the simulation itself
                violations = [f"the simulation fails: {type(error).__name__}: {error}"]
            if violations:
                return Found(number, seed, rule_of(violations[0]))
    return Found(number, None)
