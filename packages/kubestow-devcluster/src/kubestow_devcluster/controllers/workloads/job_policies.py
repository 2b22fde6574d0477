"""The completion indexes of indexed jobs, and the policies that pod failures and completed indexes match."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from kubestow_devcluster.apiserver.schema.types import Object


class CompletionIndexes:
    """A set of numbers as disjoint ranges in order: ``1,3-5``. All costs depend on the ranges, not on the numbers.

    The text may list ranges in any order, overlapping ones too. Raises ValueError if it has another form.
    """

    def __init__(self, text: str = "") -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._count = 0
        ranges = []
        for part in text.split(",") if text else ():
            first, _, last = part.partition("-")
            ranges.append((int(first), int(last or first)))
        for start, end in sorted(ranges):
            if self._lasts and start <= self._lasts[-1] + 1:
                self._lasts[-1] = max(self._lasts[-1], end)
            else:
                self._firsts.append(start)
                self._lasts.append(end)
        self._count = sum(end - start + 1 for start, end in zip(self._firsts, self._lasts, strict=True))

    def __len__(self) -> int:
        return self._count

    def __contains__(self, index: int) -> bool:
        place = bisect_right(self._firsts, index) - 1
        return place >= 0 and index <= self._lasts[place]

    def __str__(self) -> str:
        ranges = zip(self._firsts, self._lasts, strict=True)
        return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)

    def add(self, index: int) -> None:
        """Add one number; ranges that it joins become one."""
        place = bisect_right(self._firsts, index)
        if place and index <= self._lasts[place - 1]:
            return
        self._count += 1
        follows = place > 0 and self._lasts[place - 1] == index - 1
        precedes = place < len(self._firsts) and self._firsts[place] == index + 1
        if follows and precedes:
            self._lasts[place - 1] = self._lasts.pop(place)
            del self._firsts[place]
        elif follows:
            self._lasts[place - 1] = index
        elif precedes:
            self._firsts[place] = index
        else:
            self._firsts.insert(place, index)
            self._lasts.insert(place, index)

    def missing(self, end: int) -> Iterator[int]:
        """The numbers from 0 up to ``end``, exclusive, that the set lacks, in order."""
        start = 0
        for first, last in zip(self._firsts, self._lasts, strict=True):
            yield from range(start, min(first, end))
            start = last + 1
        yield from range(start, end)

    def count_in(self, other: CompletionIndexes) -> int:
        """How many numbers the two sets have in common."""
        common = place = 0
        for first, last in zip(self._firsts, self._lasts, strict=True):
            while place < len(other._lasts) and other._lasts[place] < first:
                place += 1
            at = place
            while at < len(other._firsts) and other._firsts[at] <= last:
                common += min(last, other._lasts[at]) - max(first, other._firsts[at]) + 1
                at += 1
            place = max(place, at - 1)
        return common


class FailureAction(NamedTuple):
    """What a pod failure policy does about a failed pod: FailJob, FailIndex, Ignore or Count, and why."""

    action: str
    message: str = ""


def failure_action(job: Object, pod: Object) -> FailureAction:
    """The action of the first rule that matches a failed pod; Count without any."""
    for index, rule in enumerate((job["spec"].get("podFailurePolicy") or {}).get("rules") or ()):
        if (cause := _cause(rule, pod)) is not None:
            action = rule["action"]
            return FailureAction(action, f"{cause} matching {action} rule at index {index}")
    return FailureAction("Count")


def _cause(rule: Object, pod: Object) -> str | None:
    """How a pod matches a rule, None if it does not."""
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    if (on_exit_codes := rule.get("onExitCodes")) is not None:
        for container, exit_code in _exit_codes(pod):
            is_meant = on_exit_codes.get("containerName") in (None, "", container)
            if is_meant and (exit_code in on_exit_codes["values"]) == (on_exit_codes["operator"] == "In"):
                return f"Container {container} for pod {name} failed with exit code {exit_code}"
        return None
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions") or ()}
    for pattern in rule.get("onPodConditions") or ():
        if conditions.get(pattern["type"]) == pattern["status"]:
            return f"Pod {name} has condition {pattern['type']}"
    return None


def _exit_codes(pod: Object) -> Iterator[tuple[str, int]]:
    """The containers that have failed, with their exit codes."""
    status = pod["status"]
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        exit_code = container["state"].get("terminated", {}).get("exitCode", 0)
        if exit_code:
            yield container["name"], exit_code


def matched_success_rule(job: Object, completed: CompletionIndexes) -> int | None:
    """The index of the first rule of the success policy that the completed indexes satisfy."""
    for index, rule in enumerate((job["spec"].get("successPolicy") or {}).get("rules") or ()):
        wanted = CompletionIndexes(rule["succeededIndexes"]) if rule.get("succeededIndexes") else None
        succeeded = len(completed) if wanted is None else completed.count_in(wanted)
        needed = rule.get("succeededCount") or (len(wanted) if wanted is not None else 0)
        if needed and succeeded >= needed:
            return index
    return None
