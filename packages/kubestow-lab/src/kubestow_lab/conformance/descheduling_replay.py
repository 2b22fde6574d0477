"""Replay of recorded loops of the descheduler, to compare the evictions.

The recording marks what was the same in all its runs, and only that is compared: the descheduler walks hash maps, so
its choice among equals is often random. Errors of policies are compared in its words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from kubestow.api.meta import convert
from kubestow.descheduling.descheduler_policy import load_policy, with_priority_thresholds
from kubestow.descheduling.dry_run.loop_report import eviction_document
from kubestow.descheduling.eviction import DryRunEvictions, Eviction
from kubestow.descheduling.loop import Descheduler, LoopResult
from kubestow.descheduling.snapshot import (
    Namespace,
    Node,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PriorityClass,
    Snapshot,
)
from kubestow.descheduling.strategies.plugin_registry import find_plugins
from kubestow.errors import ConfigurationError
from kubestow_lab.conformance.recorded_cases import DescheduleCase, Object
from kubestow_lab.conformance.scheduling_replay import ReplayMismatch, differing

_PLURALS: dict[str, type[Any]] = {
    "nodes": Node,
    "pods": Pod,
    "namespaces": Namespace,
    "persistentvolumeclaims": PersistentVolumeClaim,
    "poddisruptionbudgets": PodDisruptionBudget,
    "priorityclasses": PriorityClass,
}
#: The fields of an eviction that are recorded.
_RECORDED = ("pod", "node", "profile", "plugin", "reason", "gracePeriodSeconds", "error")
_DECODING = "failed decoding descheduler's policy config"
_FIELD = re.compile(r'(?:unknown field "|Go struct field \w+\.)([\w.\[\]]+)')
_PROFILE = re.compile(r"profiles\[(\d+)\]")
_MISSING = re.compile(r'unable to find "(.*)" plugin config')


def replay_descheduling(case: DescheduleCase) -> list[ReplayMismatch]:
    """Replay one case and return what differs from the recording."""
    registry = find_plugins()
    snapshot = Snapshot.of(
        convert(_PLURALS[plural], manifest) for plural, objects in case.cluster.items() for manifest in objects
    )
    try:
        policy = load_policy(case.policy, staged=True, registry=registry)
        policy = with_priority_thresholds(policy, snapshot.priority_classes)
    except ConfigurationError as error:
        expected = case.expect.get("error")
        fields = [] if _same_field(expected, error) else [("error", expected, _in_its_words(error, case.policy))]
    else:
        backend = DryRunEvictions(snapshot.budgets)
        result = Descheduler(policy, registry).run(snapshot, now=case.now, backend=backend)
        fields = list(_compared(case.expect, result))
    return differing(case.name, "", fields)


def _compared(expect: Object, result: LoopResult) -> Iterator[tuple[str, Any, Any]]:
    """Each compared field as (path, expected, actual)."""
    if "error" in expect:
        yield "error", expect["error"], None
        return
    stable, evicted = expect["stable"], [_record(eviction) for eviction in result.evicted]
    if stable["evicted"]:
        yield "evicted", expect["evicted"], evicted if stable["order"] else _by_pod(evicted)
    if stable["refused"]:
        refused = [_record(eviction) for eviction in result.refused]
        yield "refused", _by_pod(expect["refused"]), _by_pod(refused)
    if stable["total"] or len(evicted) not in expect["total"]:
        yield "total", expect["total"], len(evicted)
    if stable["perNode"]:
        yield "perNode", expect["perNode"], dict(Counter(record["node"] for record in evicted))
    if stable["perNodeOwner"] and "perNodeOwner" in expect:
        owners = Counter[str]()
        for pod in (eviction.pod for eviction in result.evicted):
            owner = next(iter(pod.owners), None)
            owners[f"{pod.node_name}|" + (f"{pod.namespace}/{owner.kind}/{owner.name}" if owner else pod.key)] += 1
        yield "perNodeOwner", expect["perNodeOwner"], dict(owners)


def _record(eviction: Eviction) -> Object:
    document = eviction_document(eviction)
    return {field: document[field] for field in _RECORDED if field in document}


def _by_pod(records: Sequence[Object]) -> list[Object]:
    return sorted(records, key=lambda record: (record["pod"], record["plugin"]))


# -- errors ------------------------------------------------------------------------------------------------------------


def _same_field(expected: str | None, error: ConfigurationError) -> bool:
    """Whether the recorded error is one of decoding, and names a field of this error, if it names any.

    The descheduler reports the first such error in the words of Go's decoder, with the name of the field only.
    """
    if expected is None or not expected.startswith(_DECODING):
        return False
    named = set(_FIELD.findall(expected))
    return not named or any(path.endswith(tuple(named)) for path, _ in error.problems)


def _in_its_words(error: ConfigurationError, policy: Object) -> str:
    """The errors of a policy as the descheduler words them: with the profile instead of the field."""
    by_config: dict[str, list[str]] = {}
    # It stops at the first mistake in the plugins of an extension point.
    problems = error.problems[:1] if ".plugins." in error.problems[0][0] else error.problems
    for path, message in problems:
        by_config.setdefault(path.partition(".args")[0], []).append(_with_profile(path, message, policy))
    return _aggregate([_aggregate(messages) for messages in by_config.values()])


def _with_profile(path: str, message: str, policy: Object) -> str:
    found = _PROFILE.match(path)
    if found is None or message.startswith("unable to get priority value"):
        return message
    name = policy["profiles"][int(found[1])]["name"]
    if ".plugins." not in path:
        return f"in profile {name}: {message}"
    if missing := _MISSING.fullmatch(message):
        message = f"unable to build {missing[1]} plugin: {message}"
    text, colon, names = message.rpartition("non-existing plugins: ")
    if colon:
        message = f"{text}{colon}map[{' '.join(f'{plugin}:{{}}' for plugin in names.split())}]"
    return f'failed to create new descheduler: unable to create "{name}" profile: {message}'


def _aggregate(messages: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(messages))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"
