"""Fuzzing: scenarios are played and compared for a while; what differs is shrunk and kept."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

from kubestow.errors import KubestowError
from kubestow.framework.profile import Registry
from kubestow_lab.conformance.observed_decisions import compare_observed, observed_decision
from kubestow_lab.conformance.recorded_cases import Case, Object
from kubestow_lab.differential.scenarios import Scenario

#: Plays a scenario, with the seconds that the scheduler has to learn of it; None if there was no decision.
Play = Callable[[Scenario, float], Awaitable[Case | None]]

#: Seconds that a scheduler has to learn of a scenario, at first and when a difference is confirmed.
_SETTLE, _CONFIRM = 0.15, 1.5
#: Parts of a pod or a node that shrinking leaves out.
_OPTIONAL_PARTS = (
    *(("spec", name) for name in ("affinity", "tolerations", "topologySpreadConstraints", "nodeSelector", "taints")),
    *(("spec", name) for name in ("initContainers", "volumes", "resourceClaims", "overhead", "priority")),
    *(("status", "images"), ("metadata", "labels"), ("metadata", "annotations")),
)


class Difference(NamedTuple):
    """A case about which the scheduler here decides otherwise: how, and what."""

    case: Case
    verdict: str
    here: str

    def __str__(self) -> str:
        return f"{self.case.name}: {self.verdict}: {observed_decision(self.case).text!r}, here {self.here!r}"


class Fuzzer:
    """Plays scenarios, and counts verdicts in ``counts``."""

    def __init__(self, play: Play, registry: Registry, *, shrink_budget: int = 60) -> None:
        self._play, self._registry, self._shrink_budget = play, registry, shrink_budget
        self.counts = Counter[str]()

    async def try_scenario(self, scenario: Scenario) -> Difference | None:
        """Play a scenario; a difference that is there again when it is played once more, with more time, is shrunk."""
        case = await self._play(scenario, _SETTLE)
        if case is None:
            self.counts["no decision"] += 1
            return None
        difference = self._difference(case)
        if difference is not None:
            case = await self._play(scenario, _CONFIRM)
            difference = None if case is None else self._difference(case)
        if difference is None:
            self.counts["agrees: " + _kind(case)] += 1
            return None
        self.counts[f"differs: {difference.verdict}"] += 1
        return await self._shrunk(scenario, difference)

    def _difference(self, case: Case) -> Difference | None:
        try:
            comparison = compare_observed(case, self._registry)
        except KubestowError as error:
            return Difference(case, "error", str(error))
        return None if comparison.verdict.agrees else Difference(case, str(comparison.verdict), comparison.here)

    async def _shrunk(self, scenario: Scenario, difference: Difference) -> Difference:
        """The same difference with as few objects and fields as possible."""
        budget, is_smaller = self._shrink_budget, True
        while is_smaller:
            is_smaller = False
            for smaller in _smaller(scenario):
                if budget <= 0:
                    return difference
                budget -= 1
                case = await self._play(smaller, _CONFIRM)
                found = None if case is None else self._difference(case)
                if found is not None and found.verdict == difference.verdict:
                    scenario, difference, is_smaller = smaller, found, True
                    break
        return difference


def _kind(case: Case | None) -> str:
    """What a scheduler has decided, in general."""
    if case is None:
        return "no decision"
    observed = case.expect[0]["observed"]
    return "placed" if "node" in observed else "preempts" if "nominatedNodeName" in observed else "rejected"


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Scenarios with a part left out: halves of the objects of a kind, single objects, and fields."""
    for plural, objects in scenario.cluster.items():
        size = len(objects)
        while size:
            for start in range(0, len(objects), size):
                left = objects[:start] + objects[start + size :]
                if left or plural != "nodes":
                    yield Scenario(scenario.origin, {**scenario.cluster, plural: left}, scenario.pod)
            size //= 2
    for section, field in _OPTIONAL_PARTS:
        if (changed := _without(scenario.pod, section, field)) is not None:
            yield Scenario(scenario.origin, scenario.cluster, changed)
        for plural in ("nodes", "pods"):
            objects = scenario.cluster.get(plural, [])
            changed_objects = [_without(obj, section, field) or obj for obj in objects]
            if any(one is not other for one, other in zip(objects, changed_objects, strict=True)):
                yield Scenario(scenario.origin, {**scenario.cluster, plural: changed_objects}, scenario.pod)


def _without(obj: Object, section: str, field: str) -> Object | None:
    """An object without a field; None if it has none."""
    if not (obj.get(section) or {}).get(field):
        return None
    changed = deepcopy(obj)
    del changed[section][field]
    return changed


def recorded_line(case: Case) -> Mapping[str, Any]:
    """A case in the format of the recordings."""
    return {
        "name": case.name,
        "area": case.area,
        "kubernetesVersion": str(case.minor),
        "cluster": dict(case.cluster),
        "pods": case.pods,
        "expect": case.expect,
    }


def append_case(path: Path, case: Case) -> None:
    """Append a case to a file that ``kubestow verify`` reads."""
    with gzip.open(path, "at") as stream:
        stream.write(json.dumps(recorded_line(case)) + "\n")
