"""The policies of Jobs, as pure functions: pod failure policies and success policies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.controllers.workloads.completion_indexes import CompletionIndexes

__all__ = ["FailureAction", "failure_action", "matched_success_rule"]


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
            if on_exit_codes.get("containerName") in (None, "", container) and _matches(on_exit_codes, exit_code):
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


def _matches(on_exit_codes: Object, exit_code: int) -> bool:
    return bool((exit_code in on_exit_codes["values"]) == (on_exit_codes["operator"] == "In"))


def matched_success_rule(job: Object, completed: CompletionIndexes) -> int | None:
    """The index of the first rule of the success policy that the completed indexes satisfy."""
    for index, rule in enumerate((job["spec"].get("successPolicy") or {}).get("rules") or ()):
        wanted = CompletionIndexes(rule["succeededIndexes"]) if rule.get("succeededIndexes") else None
        succeeded = len(completed) if wanted is None else completed.count_in(wanted)
        needed = rule.get("succeededCount") or (len(wanted) if wanted is not None else 0)
        if needed and succeeded >= needed:
            return index
    return None
