"""Scenarios: what a run consists of, drawn from a seed, or made from another scenario by changing it.

Every run draws its own subset of features and its own fault rates, because a run in which everything happens at once
hides what a few things alone would show. All else that happens in a run follows from its scenario.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from itertools import chain
from random import Random
from typing import Any

from kubestow.rules.minors import DEFAULT_MINOR, MINORS, Behaviour, Minor
from kubestow_lab.fault_simulation.faults import RATES, Fault


class Part(StrEnum):
    """The optional parts of a simulation. Most are not large, because many short runs find more in the same time."""

    GANGS = "gangs"
    EXTENDERS = "extenders"
    ELECTION = "election"
    PLUGIN = "plugin"
    VOLUMES = "volumes"
    DEVICES = "devices"
    HTTP = "http"
    OUTAGES = "outages"
    SERVER_CLOCK = "server clock"
    LARGE = "large"
    STALLS = "stalls"
    RECORDS = "records"
    GANG_SEARCH = "gang search"
    PARTITIONS = "partitions"
    CLAIM_TEMPLATES = "claim templates"


_PROBABILITIES = {
    Part.GANGS: 0.6,
    Part.EXTENDERS: 0.35,
    Part.ELECTION: 0.4,
    Part.PLUGIN: 0.5,
    Part.VOLUMES: 0.6,
    Part.DEVICES: 0.6,
    Part.HTTP: 0.5,
    Part.OUTAGES: 0.3,
    Part.SERVER_CLOCK: 0.3,
    Part.LARGE: 0.05,
}
#: Only if it is required: the plugin GangPlacementSearch of kubestow-contrib, and jobs whose pods differ in size.
_NEEDS_GANGS = frozenset({Part.GANG_SEARCH})
#: Workloads whose pods have device claims of their own, as from a ResourceClaimTemplate. Drawn by itself.
_NEEDS_DEVICES = frozenset({Part.CLAIM_TEMPLATES})
_PROBABILITY_OF_CLAIM_TEMPLATES = 0.3
#: What partitions take the place of, or do not go with; they are a part only if they are required, too.
_NOT_WITH_PARTITIONS = frozenset(
    {Part.ELECTION, Part.EXTENDERS, Part.DEVICES, Part.GANGS, Part.STALLS, Part.RECORDS, Part.CLAIM_TEMPLATES}
)
#: The parts that only the default minor version has as they are simulated.
_PARTS_OF_DEFAULT = frozenset({Part.DEVICES})
_PROBABILITY_OF_DEFAULT = 0.5
#: Drawn by itself, so that it does not change what else a seed has.
_PROBABILITY_OF_STALLS = 0.3
#: Likewise: processes that write flight records on disks that are full at times. They have no stalls.
_PROBABILITY_OF_RECORDS = 0.1

#: The scheduler names of each process; with leader election, and without it.
_DEPLOYMENTS = ((("one",),), (("one", "two"),), (("one",), ("two",)))
_DEPLOYMENTS_WITH_LEADER_ELECTION = ((("one",), ("one",)), (("one", "two"),) * 3)


@dataclass(frozen=True)
class _ClusterSize:
    """The choices of node and pod limits, and of seconds with faults."""

    nodes: Sequence[int]
    pods: Sequence[int]
    seconds: Sequence[float]


_SMALL = _ClusterSize(nodes=(2, 3, 5), pods=(6, 10, 20), seconds=(5.0, 10.0, 20.0))
_LARGE = _ClusterSize(nodes=(5, 8), pods=(10, 25, 60), seconds=(20.0, 60.0, 120.0))


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What a run consists of. ``required`` are the parts that were not drawn; they change what is drawn after them."""

    seed: int
    required: tuple[Part, ...] = ()
    parts: frozenset[Part] = frozenset()
    minor: str = str(DEFAULT_MINOR)
    #: The scheduler names of each process.
    processes: tuple[tuple[str, ...], ...] = (("one",),)
    #: The number of partitions that the processes share, 0 if they share none.
    partitions: int = 0
    #: Upper limits of the numbers of nodes and pods, except pods of gangs.
    nodes: int = 3
    pods: int = 10
    #: The seconds with faults, which last longer until the trace has ``min_events`` lines.
    seconds: float = 10.0
    min_events: int = 600
    #: The seconds by which the server's clock is ahead.
    clock_offset: float = 0.0
    #: The probabilities of faults that are not drawn from the seed.
    rates: Mapping[Fault, float] = field(default_factory=dict)
    #: Whether pods have constraints on other pods; None if that is drawn.
    pod_constraints: bool | None = None
    #: Whether pods are tried again after five minutes without an event. That hides events that were missed.
    flushes: bool = True
    #: Whether each step of users and jobs has a random source of its own, so that others do not change without it.
    independent_steps: bool = False
    #: References to plugins of a user, and the path of a scheduler configuration that names them.
    plugins: tuple[str, ...] = ()
    configuration: str = ""
    #: The steps that happen, by number, and the number of the first that does not; None for all.
    kept_steps: frozenset[int] | None = None
    end: int | None = None

    @property
    def leader_election(self) -> bool:
        """Whether the processes elect a leader."""
        return Part.ELECTION in self.parts

    @property
    def scheduler_names(self) -> tuple[str, ...]:
        """The names of all schedulers."""
        return tuple(dict.fromkeys(chain.from_iterable(self.processes)))

    @property
    def emulated(self) -> Minor:
        """The emulated minor version."""
        return next(minor for minor in MINORS if str(minor) == self.minor)

    @property
    def is_cut(self) -> bool:
        """Whether some steps are left out, so that nothing might be left that fills the trace."""
        return self.kept_steps is not None or self.end is not None

    def without(self, part: Part) -> Scenario:
        """The scenario without a part; a single process remains of those that elect a leader."""
        kept = replace(self, parts=self.parts - {part})
        match part:
            case Part.ELECTION:
                return replace(kept, processes=self.processes[:1])
            case Part.DEVICES:
                return replace(kept, parts=kept.parts - _NEEDS_DEVICES)
            case Part.SERVER_CLOCK:
                return replace(kept, clock_offset=0.0)
            case Part.PARTITIONS:
                return replace(kept, partitions=0, processes=self.processes[:1])
            case _:
                return kept

    def source(self) -> str:
        """The scenario as a Python expression; what equals the default is left out."""
        arguments = []
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "seed" or value != getattr(_DEFAULT, each.name):
                arguments.append(f"    {each.name}={_source(value)},\n")
        return f"Scenario(\n{''.join(arguments)})"


_DEFAULT = Scenario(seed=0)


def _source(value: Any) -> str:
    match value:
        case StrEnum():
            return f"{type(value).__name__}.{value.name}"
        case frozenset():
            items = ", ".join(_source(each) for each in sorted(value))
            return f"frozenset({{{items}}})" if value else "frozenset()"
        case tuple():
            items = ", ".join(_source(each) for each in value)
            return f"({items},)" if value else "()"
        case str():
            return json.dumps(value)
        case Mapping() if value.keys() == set(Fault) and not any(value.values()):
            return "dict.fromkeys(Fault, 0.0)"
        case Mapping():
            return "{" + ", ".join(f"{_source(key)}: {each!r}" for key, each in value.items()) + "}"
        case _:
            return repr(value)


def draw(seed: int, required: Collection[Part] = (), *, is_recorded: bool = False) -> tuple[Scenario, Random]:
    """A scenario with the required parts and others drawn at random, and the random source that it was drawn from.

    What happens to processes in the run is drawn from the same source. Recorded processes have no stalls.
    """
    if not _NEEDS_GANGS.isdisjoint(required):
        required = _ordered({*required, Part.GANGS})
    if not _NEEDS_DEVICES.isdisjoint(required):
        required = _ordered({*required, Part.DEVICES})
    random = Random(f"{seed} world")
    parts = {part for part, probability in _PROBABILITIES.items() if random.random() < probability or part in required}
    has_records = (
        Part.PARTITIONS not in required
        and not is_recorded
        and (
            Part.RECORDS in required
            or (Part.STALLS not in required and Random(f"{seed} records").random() < _PROBABILITY_OF_RECORDS)
        )
    )
    is_recorded |= has_records
    if has_records:
        parts.add(Part.RECORDS)
    stalls_are_drawn = Random(f"{seed} stalls").random() < _PROBABILITY_OF_STALLS
    if not is_recorded and (Part.STALLS in required or stalls_are_drawn):
        parts.add(Part.STALLS)
    minor = _draw_minor(seed, required, is_recorded=is_recorded)
    if minor != DEFAULT_MINOR:
        parts -= _PARTS_OF_DEFAULT
        if not minor.has(Behaviour.POD_GROUPS_ARE_UNITS):  # nor the gates of gangs
            parts.discard(Part.GANGS)
    has_templates = Random(f"{seed} claim templates").random() < _PROBABILITY_OF_CLAIM_TEMPLATES
    if Part.DEVICES in parts and (Part.CLAIM_TEMPLATES in required or has_templates):
        parts.add(Part.CLAIM_TEMPLATES)
    if Part.GANGS in parts:
        parts |= _NEEDS_GANGS.intersection(required)
    clock_offset = random.choice((3600.0, -3600.0)) if Part.SERVER_CLOCK in parts else 0.0
    deployments = _DEPLOYMENTS_WITH_LEADER_ELECTION if Part.ELECTION in parts else _DEPLOYMENTS
    processes: tuple[tuple[str, ...], ...] = random.choice(deployments)
    partitions = 0
    if Part.PARTITIONS in required:
        parts = (parts - _NOT_WITH_PARTITIONS) | {Part.PARTITIONS}
        of_partitions = Random(f"{seed} partitions")
        processes = (("one",),) * of_partitions.choice((2, 2, 3))
        partitions = of_partitions.choice((2, 2, 3, 4))
    size = _LARGE if Part.LARGE in parts else _SMALL
    nodes, pods, seconds = random.choice(size.nodes), random.choice(size.pods), random.choice(size.seconds)
    scenario = Scenario(
        seed=seed,
        required=_ordered(required),
        parts=frozenset(parts),
        minor=str(minor),
        processes=processes,
        partitions=partitions,
        nodes=nodes,
        pods=pods,
        seconds=seconds,
        clock_offset=clock_offset,
    )
    return scenario, random


def _draw_minor(seed: int, required: Collection[Part], *, is_recorded: bool) -> Minor:
    """The emulated minor version: the default in every other simulation, and where it is needed."""
    random = Random(f"{seed} minor")
    needs_default = is_recorded or not _PARTS_OF_DEFAULT.isdisjoint(required)
    if random.random() < _PROBABILITY_OF_DEFAULT or needs_default:
        return DEFAULT_MINOR
    others = [minor for minor in MINORS if minor != DEFAULT_MINOR]
    if Part.GANGS in required:
        others = [minor for minor in others if minor.has(Behaviour.POD_GROUPS_ARE_UNITS)]
    return random.choice(others)


def _ordered(parts: Iterable[Part]) -> tuple[Part, ...]:
    return tuple(part for part in Part if part in set(parts))


def mutated(scenario: Scenario, random: Random) -> Scenario:
    """Another scenario near a given one: another seed, and perhaps another part, fault rate or size."""
    seed = random.randrange(1, 2**31)
    changed = replace(scenario, seed=seed, required=_ordered(scenario.parts))
    for _ in range(random.randrange(3)):
        match random.randrange(4):
            case 0:
                part = random.choice([*_PROBABILITIES])
                if part in changed.parts:
                    changed = changed.without(part)
                else:
                    drawn, _ = draw(seed, [*changed.parts, part])
                    changed = replace(drawn, rates=changed.rates, plugins=scenario.plugins)
            case 1:
                changed = replace(changed, rates={**changed.rates, random.choice([*Fault]): random.choice(RATES)})
            case 2:
                changed = replace(changed, nodes=random.choice(_SMALL.nodes), pods=random.choice(_SMALL.pods))
            case _:
                changed = replace(changed, seconds=random.choice(_SMALL.seconds))
    return replace(
        changed,
        configuration=scenario.configuration,
        plugins=scenario.plugins,
        flushes=scenario.flushes,
        pod_constraints=scenario.pod_constraints,
    )
