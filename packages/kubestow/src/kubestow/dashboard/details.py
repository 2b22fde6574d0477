"""What is read on request about one pod or node: attempts, place in the queue, free amounts, pods."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.policy import PodDisruptionBudget
from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.explanation.evaluated_nodes import EvaluatedNodes, evaluate_nodes
from kubestow.engine.pipeline.offline_scheduler import unbound
from kubestow.errors import KubestowError
from kubestow.framework.evaluation.feasibility import Feasibility
from kubestow.framework.profile import Profile
from kubestow.framework.status import Code
from kubestow.observability.pod_states import PodStates
from kubestow.observability.recent_attempts import AttemptRecord, Candidate, RecentAttempts, RecentPreemptions
from kubestow.plugins.default_preemption.candidates import CandidateRanking
from kubestow.plugins.default_preemption.dry_run import DisruptionBudgets, below, dry_run
from kubestow.rules.requests import PODS
from kubestow.scheduling.interfaces import Clock
from kubestow.scheduling.scheduler import Scheduler

#: Nodes for which preemption is tried, candidates that are shown, and victims of each.
_MOST_DRY_RUNS, _MOST_CANDIDATES, _MOST_VICTIMS = 256, 20, 50


class PodDetails:
    """The details of any pod of one scheduler."""

    def __init__(
        self, scheduler: Scheduler, attempts: RecentAttempts, preemptions: RecentPreemptions, clock: Clock
    ) -> None:
        self._scheduler, self._attempts, self._preemptions = scheduler, attempts, preemptions
        self._states, self._clock = PodStates(scheduler, attempts, clock), clock

    def of(self, namespace: str, name: str) -> dict[str, Any] | None:
        """A pod as plain data; None for a pod that does not exist or has terminated."""
        info = self._scheduler.pods.named(namespace, name)
        if info is None:
            return None
        profile = self._scheduler.profiles.get(info.spec.scheduler_name)
        placed_pod = self._scheduler.cluster.placed_pod(info.uid)
        return {
            "pod": info.key,
            "uid": info.uid,
            "time": round(self._clock.now().timestamp(), 1),
            "priority": info.priority,
            "requests": {resource: amount for resource, amount in info.requests.items() if amount},
            "labels": info.labels,
            "node": info.spec.node_name or ("" if placed_pod is None else placed_pod.node_name),
            "isBound": bool(info.spec.node_name),
            "nominatedNode": self._scheduler.cluster.nomination(info.uid) or "",
            "summary": self._states.summary(info),
            **self._queued(info),
            "attempts": [self._attempt(record) for record in self._attempts.of(info.key) if record.uid == info.uid],
            **({} if profile is None else self._evaluated(info, profile)),
        }

    def _attempt(self, record: AttemptRecord) -> dict[str, Any]:
        preemption = self._preemptions.of(record.uid, record.number)
        return {
            "number": record.number,
            "time": round(record.ended_at.timestamp(), 1),
            "seconds": round(record.seconds, 6),
            "result": record.result.value,
            "node": record.node_name,
            "message": record.message,
            **({} if preemption is None else {"preemption": msgspec.to_builtins(preemption)}),
        }

    def _queued(self, info: PodInfo) -> dict[str, Any]:
        """The place of a pod in the queue, and the events that requeue it."""
        queued = self._scheduler.queue.pods.get(info.uid)
        if queued is None:
            return {}
        events = self._states.requeue_events(info.spec.scheduler_name, queued.rejectors | queued.pending_plugins)
        retry = self._scheduler.queue.moves.retry_time(queued)
        epoch = self._clock.now().timestamp() - self._clock.monotonic()
        return {
            "queue": {
                "place": queued.place.value,
                "since": round(epoch + queued.timestamp, 1),
                "retryAt": None if retry is None else round(epoch + retry, 1),
                "gatedBy": queued.gated_by,
                "waitsFor": events,
            }
        }

    # -- all nodes -----------------------------------------------------------------------------------------------------

    def _evaluated(self, info: PodInfo, profile: Profile) -> dict[str, Any]:
        cluster = self._scheduler.cluster
        if not len(cluster.nodes):
            return {}
        with ExitStack() as stack:
            if cluster.placed_pod(info.uid) is not None:
                stack.enter_context(cluster.simulate()).remove_pod(info.uid)
            new = cluster.shapes.info(unbound(info.pod))
            try:
                evaluated, feasibility = evaluate_nodes(cluster, profile, new)
                found: dict[str, Any] = {"evaluation": _evaluation(evaluated)}
                if not len(evaluated.rows):
                    found["message"] = feasibility.diagnose().message()
                    found["preemption"] = self._preemption(new, feasibility)
                return found
            except KubestowError as error:
                return {"error": str(error)}

    def _preemption(self, info: PodInfo, feasibility: Feasibility) -> dict[str, Any]:
        """The nodes where evictions would make the pod fit, in the order of the scheduler's criteria (semantics 9.5).

        The scheduler looks at a sample of them from a random node on, so it may choose another than the first.
        """
        cluster = self._scheduler.cluster
        if info.spec.preemption_policy == "Never":
            return {"candidates": [], "tried": 0, "note": "the pod's preemptionPolicy is Never"}
        resolvable = np.flatnonzero(feasibility.diagnose().with_code(Code.UNSCHEDULABLE))
        rows = resolvable[:_MOST_DRY_RUNS]
        if not len(rows):
            return {"candidates": [], "tried": 0, "note": "no node rejects the pod for a reason that evictions resolve"}
        budgets = DisruptionBudgets(cluster.catalog(PodDisruptionBudget))
        run = dry_run(feasibility.filters, cluster.nodes, rows, may_evict=below(info.priority), budgets=budgets)
        order: NDArray[np.intp] = CandidateRanking.of(run.victims, run.violations).order()
        positions = [at for at in order.tolist() if run.victims.lengths[at]][:_MOST_CANDIDATES]
        return {
            "candidates": [
                msgspec.to_builtins(
                    Candidate.of(
                        cluster.nodes.names[rows[at]], run.victims.at(at), int(run.violations[at]), _MOST_VICTIMS
                    )
                )
                for at in positions
            ],
            "tried": len(rows),
            "note": "" if len(rows) == len(resolvable) else f"tried for {len(rows)} of {len(resolvable)} nodes",
        }


def _evaluation(evaluated: EvaluatedNodes) -> dict[str, Any]:
    """The evaluation as columns.

    Of each filter one code per node: -2 not run, -1 skipped, 0 passed, from 1 on the number of a status. Scores have
    one entry per feasible node, in the order of ``rows``: the highest total first.
    """
    return {
        "nodes": evaluated.names,
        "filters": [
            {
                "plugin": column.plugin,
                "codes": column.codes.tolist(),
                "statuses": [{"code": status.code.value, "reasons": status.reasons} for status in column.statuses],
            }
            for column in evaluated.columns()
        ],
        "rows": evaluated.rows.tolist(),
        "totals": evaluated.totals.tolist(),
        "scores": [
            {
                "plugin": found.plugin,
                "weight": found.weight,
                "raw": found.raw.tolist(),
                "normalized": found.normalized.tolist(),
            }
            for found in evaluated.scores
        ],
    }


_MOST_PODS = 512


def node_details(cluster: Cluster, name: str) -> dict[str, Any] | None:
    """A node with its pods, those with the highest priority first; None for an unknown node.

    Amounts are in millicores, bytes and counts.
    """
    table = cluster.nodes
    row = table.rows.get(name)
    if row is None:
        return None
    allocatable, requested = table.allocatable.at(row), table.requested.at(row)
    amounts = {
        resource: {"allocatable": amount, "requested": requested.get(resource, 0)}
        for resource, amount in allocatable.items()
        if amount or requested.get(resource)
    }
    amounts[PODS] = {
        "allocatable": int(table.allowed_pods.values[row]),
        "requested": int(table.pod_count.values[row]),
    }
    pods = sorted(table.pods[row].values(), key=lambda info: (-info.priority, info.key))
    node = table.objects[row]
    return {
        "name": name,
        "labels": node.metadata.labels,
        "cordoned": node.spec.unschedulable,
        "taints": [f"{taint.key}={taint.value}:{taint.effect}" for taint in node.spec.taints],
        "amounts": amounts,
        "podCount": len(pods),
        "pods": [
            {
                "pod": info.key,
                "priority": info.priority,
                "requests": {resource: amount for resource, amount in info.requests.items() if amount},
                "assumed": cluster.is_assumed(info.uid),
                "terminating": info.terminating,
            }
            for info in pods[:_MOST_PODS]
        ],
        "nominated": [info.key for info in cluster.nominated_pods(name)],
    }
