"""Replay of recorded scheduling cases, to compare kubestow with kube-scheduler.

:func:`replay` builds the cluster of a case and schedules its pods in order, each on the cluster as the pods before it
left it. It compares every recorded result: filter statuses, feasible nodes, weighted scores, totals, the chosen node,
the message and preemption. A result that differs is a :class:`ReplayMismatch`. There is no queue, and writes apply to
the cluster itself: victims are deleted at once, and an immediate controller binds volumes.

Configuration errors are compared by the fields that they name. kube-scheduler names fields in three ways: the path
before a field error, a quoted path for an unknown field, and Go's struct name and a path without indices for a type
error. If its message names no field (an invalid duration, an unknown kind), any error agrees.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.pipeline.offline_scheduler import with_all_candidate_nodes
from kubestow.engine.pipeline.static_handle import StaticHandle
from kubestow.errors import ConfigurationError, PluginError
from kubestow.framework.profile import Profile, Registry, build_profile, implements
from kubestow.framework.status import SUCCESS, Code, Status
from kubestow.rules.pods import is_terminal
from kubestow.scheduling.decision.node_selection import FirstByName
from kubestow.scheduling.decision.pipeline import DecisionPipeline, run_synchronously
from kubestow.scheduling.decision.result import Decision, Failed, Scheduled, Unschedulable
from kubestow.scheduling.events.resources import CATALOGUED
from kubestow_lab.conformance.recorded_cases import CapacityCase, Case, Object

_STARTED_BEFORE = "2020-01-01T00:00:00Z"
_FIRST_START = datetime(2100, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ReplayMismatch:
    """A result that differs from the recorded one.

    ``field`` is the path of the result, such as ``scores.NodeAffinity.node-1``. ``pod`` is namespace/name, and empty
    for a mismatch of the configuration.
    """

    case: str
    pod: str
    field: str
    expected: Any
    actual: Any


def replay(case: Case, registry: Registry) -> list[ReplayMismatch]:
    """Replay one case and return the results that differ from the recorded ones."""
    try:
        run = _Replay(case, registry)
    except (ConfigurationError, PluginError) as error:
        problems = error.problems if isinstance(error, ConfigurationError) else [("", str(error))]
        if case.config_error is not None and report_same_fields(problems, case.config_error):
            return []
        return [ReplayMismatch(case.name, "", "config_error", case.config_error, str(error))]
    if case.config_error is not None:
        return [ReplayMismatch(case.name, "", "config_error", case.config_error, None)]
    mismatches: list[ReplayMismatch] = []
    for pod, recorded in zip(case.pods, case.expect, strict=False):
        key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        mismatches += differing(case.name, key, _compare(recorded, run.schedule(pod)))
    return mismatches


def differing(case: str, pod: str, fields: Iterable[tuple[str, Any, Any]]) -> list[ReplayMismatch]:
    """The fields, each as (path, expected, actual), that differ from the recording."""
    return [ReplayMismatch(case, pod, *field) for field in fields if field[1] != field[2]]


def configuration_of(
    case: Case | CapacityCase, registry: Registry, gates: config.FeatureGates
) -> config.KubeSchedulerConfiguration:
    """The configuration of a case, by default kube-scheduler's. Raises ConfigurationError."""
    if case.config is None:
        return config.default_configuration(gates)
    return config.load(case.config, subject=case.name, gates=gates, implements=implements(registry))


def gates_of(case: Case) -> config.FeatureGates:
    """The feature gates of a case."""
    return config.FeatureGates(case.feature_gates, minor=case.minor, subject=case.name)


def cluster_of(case: Case, gates: config.FeatureGates) -> Cluster:
    """The cluster in which the first pod of a case was decided about."""
    cluster = Cluster(gates=gates)
    for node in case.cluster.get("nodes", ()):
        cluster.add_node(convert(Node, node))
    for namespace in case.cluster.get("namespaces", ()):
        cluster.put_namespace(namespace["metadata"]["name"], namespace["metadata"].get("labels") or {})
    for resource in CATALOGUED:
        for obj in case.cluster.get(resource.plural, ()):
            if obj.get("apiVersion", resource.api_version) == resource.api_version:
                cluster.catalog(resource.type).put(convert(resource.type, obj))
    for pod in case.cluster.get("pods", ()):
        _put_existing(cluster, pod)
    return cluster


def _put_existing(cluster: Cluster, pod: Object) -> None:
    status = pod.get("status") or {}
    if is_terminal(status.get("phase")):
        return
    if pod["spec"].get("nodeName"):
        started = {"startTime": _STARTED_BEFORE} | status
        cluster.put_pod(cluster.shapes.info(convert(Pod, pod | {"status": started})))
    elif status.get("nominatedNodeName"):
        cluster.nominate(cluster.shapes.info(convert(Pod, pod)), status["nominatedNodeName"])


class _Replay:
    """The cluster of one case and its scheduling profiles."""

    def __init__(self, case: Case, registry: Registry) -> None:
        gates = gates_of(case)
        configuration = configuration_of(case, registry, gates)
        self.cluster = cluster_of(case, gates)
        handle = StaticHandle(self.cluster, gates)
        self._profiles: dict[str, Profile] = {
            profile.scheduler_name: build_profile(with_all_candidate_nodes(profile), registry, handle)
            for profile in configuration.profiles
        }
        self._pipeline = DecisionPipeline(self.cluster, self._profiles, FirstByName())
        self._bound = 0

    def _info(self, pod: Object) -> PodInfo:
        return self.cluster.shapes.info(convert(Pod, pod))

    # -- one pod -------------------------------------------------------------------------------------------------

    def schedule(self, pod: Object) -> Object:
        """Schedule a pod, apply the result to the cluster and return it as the recording spells it."""
        info = self._info(pod)
        profile = self._profiles.get(info.spec.scheduler_name)
        if profile is None:
            return {"result": "error", "message": f'profile not found for scheduler name "{info.spec.scheduler_name}"'}
        if info.terminating:
            return {"result": "error", "message": f"skip schedule deleting pod: {info.key}"}
        admission = profile.queueing.run_pre_enqueue_plugins(info)
        if not admission.ok:
            return {"result": "gated", "preenqueue": _status(admission)}
        if info.status.nominated_node_name:
            self.cluster.nominate(info, info.status.nominated_node_name)
        decision = self._pipeline.decide_by_plugins(info)
        result = _result(self.cluster, decision)
        if isinstance(decision, Scheduled):
            self.cluster.assume(info, decision.node_name)
            status = self._prepare(profile, decision, decision.node_name)
            if not status.ok:
                self.cluster.forget(info.uid)
                return {"result": "error", "message": status.message}
            started = _FIRST_START + timedelta(seconds=self._bound)
            self._bound += 1
            bound = (pod.get("status") or {}) | {"startTime": started.isoformat(), "nominatedNodeName": ""}
            spec = pod["spec"] | {"nodeName": decision.node_name}
            self.cluster.put_pod(self._info(pod | {"spec": spec, "status": bound}))
        elif isinstance(decision, Unschedulable):
            self._apply_post_filter(decision)
        return result

    def _apply_post_filter(self, decision: Unschedulable) -> None:
        """Delete the victims that PostFilter chose and nominate the pod, which stays pending."""
        for action in decision.post_filter.actions:
            run_synchronously(action())
        pod, result = decision.pod, decision.post_filter.nominating_result
        if result is None or result.nominated_node_name is None:
            return
        for other in (*result.victims, *result.lower_priority_nominated):
            self.cluster.remove_pod(other.uid)
            self.cluster.drop_nomination(other.uid)
        if result.nominated_node_name:
            self.cluster.nominate(pod, result.nominated_node_name)
        else:
            self.cluster.drop_nomination(pod.uid)

    def _prepare(self, profile: Profile, decision: Decision, node_name: str) -> Status:
        """Run the Reserve and PreBind plugins for the chosen node."""
        pod, state, runtime = decision.pod, decision.state, profile.binding
        status = runtime.run_reserve_plugins(state, pod, node_name)
        if status.ok:
            status, plugins = runtime.run_pre_bind_pre_flights(state, pod, node_name)
            if plugins:

                async def pre_bind() -> Status:
                    never = asyncio.get_running_loop().create_future()
                    return await runtime.run_pre_bind_plugins(plugins, state, pod, node_name, never)

                status = asyncio.run(pre_bind())
        if not status.ok and status.code is not Code.SKIP:
            runtime.run_unreserve_plugins(state, pod, node_name)
            return status
        return SUCCESS


# -- results in the format of the recording ------------------------------------------------------------------------


def _result(cluster: Cluster, decision: Decision) -> Object:
    if isinstance(decision, Failed):
        return {"result": "error", "message": decision.message}
    if isinstance(decision, Unschedulable):
        outcome: Object = {"result": "unschedulable", "message": decision.message}
        outcome |= _filter_statuses(cluster, decision) | {"feasible": []}
        found = decision.post_filter.nominating_result
        if found is not None and found.nominated_node_name:
            victims = sorted(info.key for info in found.victims)
            outcome["preemption"] = {"nominatedNodeName": found.nominated_node_name, "victims": victims}
        return outcome
    feasible = Nodes(cluster.nodes, decision.candidates).names
    result: Object = {"result": "scheduled", "feasible": sorted(feasible), "node": decision.node_name}
    result |= _filter_statuses(cluster, decision)
    if len(feasible) == 1:
        return result | {"best": feasible}
    results = decision.evaluation.score_by_plugin(decision.pod, decision.candidates)
    weighted = {result.plugin: result.weighted for result in results}
    total = sum(weighted.values(), start=np.zeros(len(feasible), np.int64))
    best = total.max()
    return result | {
        "scores": {plugin: dict(zip(feasible, scores.tolist(), strict=True)) for plugin, scores in weighted.items()},
        "total": dict(zip(feasible, total.tolist(), strict=True)),
        "best": sorted(name for name, score in zip(feasible, total.tolist(), strict=True) if score == best),
    }


def _filter_statuses(cluster: Cluster, decision: Decision) -> Object:
    if decision.feasibility is None:
        return {"filter": {}}
    diagnosis = decision.feasibility.diagnose()
    if diagnosis.pre_filter_status is not None:
        return {"prefilter": _status(diagnosis.pre_filter_status), "filter": {}}
    names = cluster.nodes.names
    narrowed_by = ",".join(diagnosis.narrowed_by)
    filters: Object = {}
    for row in np.flatnonzero(diagnosis.rejected):
        status = diagnosis.status(int(row))
        filters[names[row]] = _status(status if status.plugin else status.by(narrowed_by))
    return {"filter": filters}


def _status(status: Status) -> Object:
    return {"plugin": status.plugin, "code": status.code.value, "reasons": list(status.reasons)}


# -- comparison ----------------------------------------------------------------------------------------------------

#: The fields of a result, in the order in which they are compared.
_COMPARED = (
    *("result", "preenqueue", "prefilter", "filter", "feasible", "scores", "total", "best"),
    *("node", "message", "preemption"),
)


def _compare(recorded: Object, result: Object) -> Iterator[tuple[str, Any, Any]]:
    """Each leaf that differs, as (path, expected, actual). The messages of two errors are not compared."""
    if recorded.get("result") == result.get("result") == "error":
        return
    for field in _COMPARED:
        expected, actual = recorded.get(field), result.get(field)
        if field == "prefilter" and expected is not None:
            expected = {"plugin": "", "reasons": []} | expected
        yield from _compare_leaves(field, expected, actual)


def _compare_leaves(path: str, expected: Any, actual: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        for key in [*expected, *(key for key in actual if key not in expected)]:
            yield from _compare_leaves(f"{path}.{key}", expected.get(key), actual.get(key))
    elif expected != actual and (expected or actual):
        yield path, expected, actual


_FIELD = r"[A-Za-z]+(?:\[\d+\])?(?:\.[A-Za-z]+(?:\[\d+\])*)*"
_RULE = r"(?:Invalid value|Required value|Duplicate value|Unsupported value|Forbidden)\b"
_FIELD_ERROR = re.compile(rf"({_FIELD})(?:\[[^\]]*\])?: {_RULE}")
_ARGS = re.compile(r"decoding \.(profiles\[\d+\]\.pluginConfig\[\d+\]): (.*?)(?=decoding \.profiles|$)")
_UNKNOWN = re.compile(r'(?:unknown|duplicate) field "([^"]+)"')
_TYPE_ERROR = re.compile(r"Go struct field \w+\.(\S+) of type")
_EMBEDDED_STRUCT = "DebuggingConfiguration."


def report_same_fields(errors: Iterable[tuple[str, str]], recorded: str) -> bool:
    """Whether errors, as (path, message), name the same fields as a recorded error message."""
    errors = list(errors)
    fields = {path for path, _ in errors if path}
    fields |= {path for _, message in errors for path in _FIELD_ERROR.findall(message)}
    fields = {re.sub(r"\[[^\]\d][^\]]*\]$", "", path) for path in fields}
    recorded_fields = _fields(recorded)
    if _TYPE_ERROR.search(recorded):
        return _without_indices(recorded_fields) <= _without_indices(fields)
    return not recorded_fields or recorded_fields == fields


def _fields(recorded: str) -> set[str]:
    """The field paths in a recorded message; paths in plugin arguments are made absolute."""
    fields = set(_FIELD_ERROR.findall(recorded))
    for config_path, message in _ARGS.findall(recorded):
        fields |= {f"{config_path}.args.{path}" for path in _decoding_errors(message)}
    return fields | _decoding_errors(_ARGS.sub("", recorded))


def _decoding_errors(message: str) -> set[str]:
    paths = (*_UNKNOWN.findall(message), *_TYPE_ERROR.findall(message))
    return {path.removeprefix(_EMBEDDED_STRUCT) for path in paths}


def _without_indices(paths: set[str]) -> set[str]:
    return {re.sub(r"\[\d+\]", "", path) for path in paths}
