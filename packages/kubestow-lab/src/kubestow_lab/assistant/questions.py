"""The questions that an assistant can ask about a cluster; each method is one, and a tool of the server.

Their docstrings are what the assistant reads about a tool, and their parameters its arguments. Each returns an answer
as data, and raises an error of the :mod:`kubestow.errors` tree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubestow.api.core import Pod
from kubestow.api.formats.yaml_documents import load_yaml
from kubestow.api.selector_text import parse_selector
from kubestow.engine.explanation.evaluated_nodes import NodeEvaluation
from kubestow.engine.explanation.explain import explain, reported
from kubestow.engine.explanation.explanation import Explanation
from kubestow.engine.explanation.pending import pending_by_cause
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.input.documents import Problems, parse_objects
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions, find_pod
from kubestow.errors import APIError, InputError, InvalidSelector, Unreachable
from kubestow.flight_record.entries import AttemptEnded, Decided
from kubestow.flight_record.segment import Segment
from kubestow.flight_record.writer import segment_paths
from kubestow.reports.model import counted
from kubestow_lab.assistant.answers import Answer
from kubestow_lab.assistant.cluster_source import ClusterSource
from kubestow_lab.capacity.estimate import CapacityOptions, estimate
from kubestow_lab.capacity.pod_template import PodTemplate
from kubestow_lab.comparison.comparison import compare
from kubestow_lab.comparison.pod_differences import PodChange, PodDifference
from kubestow_lab.simulation.arrivals import Arrivals, rescheduled
from kubestow_lab.simulation.outcomes import Origin, OutcomeState, PodOutcome
from kubestow_lab.simulation.simulation import Simulation
from kubestow_lab.what_if.node_removal import drain, lose, nodes_in_zone, nodes_named, nodes_selected
from kubestow_lab.what_if.pod_fates import Fate

Document = dict[str, Any]

#: Characters of a manifest or configuration, and pods of a manifest.
_MOST_CHARACTERS, _MOST_PODS = 256 * 1024, 20_000
_BEST_SHOWN = 5
_MOST_EVENTS = 20
_POD_SCHEDULED = "PodScheduled"
_MANIFEST, _CONFIGURATION = "manifest.yaml", "candidate.yaml"


@dataclass(frozen=True, slots=True)
class ClusterQuestions:
    """The questions about one cluster. ``record`` is a flight record of its scheduler, or None."""

    source: ClusterSource
    record: Path | None = None

    def tools(self) -> Sequence[Callable[..., Document]]:
        """The questions, the most common first."""
        return (
            self.list_pending_pods,
            self.why_is_pod_pending,
            self.what_would_help,
            self.where_would_pod_go,
            self.will_it_fit,
            self.how_many_more_fit,
            self.what_if_nodes_go,
            self.what_does_configuration_change,
            self.how_did_last_attempt_go,
        )

    # -- pods of the cluster ---------------------------------------------------------------------------------------

    def list_pending_pods(self, namespace: str = "", selector: str = "") -> Document:
        """List the pending pods of the cluster by cause, with the changes that would help most of them.

        namespace: only pods of this namespace; empty for all. selector: only pods with these labels, as in
        kubectl get -l.
        """
        cluster, options = self.source.cluster()
        try:
            wanted = parse_selector(selector)
        except InvalidSelector as error:
            raise InputError("selector", str(error)) from None
        pods = [
            pod
            for pod in cluster.pods
            if (not namespace or pod.metadata.namespace == namespace) and wanted.matches(pod.metadata.labels)
        ]
        found = pending_by_cause(cluster, pods, options)
        helped = sum(cause.helped for cause in found.causes)
        sentence = f"{counted(found.count, 'pod is', 'pods are')} pending for {counted(len(found.causes), 'cause')}"
        if helped:
            sentence += f"; the best changes would help {helped:,} of them, each cause by itself"
        causes = [
            {
                "reason": cause.reason,
                "pods": len(cause.pods),
                "examples": cause.pods[:_BEST_SHOWN],
                "message": cause.message,
                "remedies": [{"change": each.text, "helps": each.helped} for each in cause.remedies[:3]],
            }
            for cause in found.causes
        ]
        within = ("-n", namespace) if namespace else ("-A",)
        words = ("why", *within, *(("-l", selector) if selector else ()))
        return self._answer(sentence, {"nodes": found.nodes, "causes": causes}, words)

    def why_is_pod_pending(self, pod: str, namespace: str = "default") -> Document:
        """Explain why a pod is pending: which plugins reject how many nodes, and what the scheduler's message is.

        pod: the name of the pod.
        """
        found = self._explain(pod, namespace, counterfactuals=False)
        evidence = _verdict(found) | {
            "reasons": [{"reason": reason, "nodes": nodes} for reason, nodes in found.waits_for().items()],
            "missing": found.missing,
            "groups": [
                {
                    "nodes": len(group.nodes),
                    "rejectedBy": [
                        {"plugin": verdict.plugin, "reasons": verdict.status.reasons} for verdict in group.rejections
                    ],
                    "examples": group.nodes[:3],
                }
                for group in found.groups()
            ],
        }
        return self._answer(_sentence(found), evidence, ("why", found.pod))

    def what_would_help(self, pod: str, namespace: str = "default", node: str = "") -> Document:
        """Find the least changes with which a pod would fit, each verified: requests, tolerations, nodes, other pods.

        pod: the name of the pod. node: the node on which it should fit; empty for any.
        """
        found = self._explain(pod, namespace, counterfactuals=True, target=node or None)
        changes = [
            {
                "change": each.change.text,
                "kind": each.change.kind,
                "node": each.node,
                "feasibleNodes": each.feasible,
                "evicts": each.evicts,
            }
            for each in found.counterfactuals
        ]
        if not found.searched:
            sentence = _sentence(found) + "; no change is needed"
        elif changes:
            ways = "one change" if len(changes) == 1 else f"one of {len(changes)} changes, the smallest first"
            sentence = f"The pod would fit with {ways}"
        else:
            sentence = "No small change was found with which the pod fits; a larger one may help"
        evidence = _verdict(found) | {"missing": found.missing, "changes": changes}
        return self._answer(sentence, evidence, ("explain", found.pod, *(("--node", node) if node else ())))

    def where_would_pod_go(self, pod: str, namespace: str = "default") -> Document:
        """Say on which node the scheduler would put a pod now, and how the best nodes score.

        pod: the name of the pod, pending or running; a running one is scored as if it was not there.
        """
        found = self._explain(pod, namespace, counterfactuals=False)
        own = found.own_node()
        evidence = _verdict(found) | {
            "tied": found.evaluated.tied,
            "best": [_scored(node) for node in found.best(_BEST_SHOWN)],
            **({"ownNode": _scored(own)} if own is not None else {}),
        }
        sentence = _sentence(found)
        if found.feasible:
            tied = found.evaluated.tied
            sentence += "; one node is best" if tied == 1 else f"; {tied:,} nodes share the best score"
        return self._answer(sentence, evidence, ("explain", found.pod))

    def how_did_last_attempt_go(self, pod: str, namespace: str = "default") -> Document:
        """Report what is recorded of the last attempt to schedule a pod: conditions, events, and the flight record.

        pod: the name of the pod.
        """
        cluster, _ = self.source.cluster()
        found = find_pod(cluster, f"{namespace}/{pod}")
        conditions: list[Document] = [
            {"status": each.status, "reason": each.reason, "message": each.message, "since": each.last_transition_time}
            for each in found.status.conditions
            if each.type == _POD_SCHEDULED
        ]
        evidence: Document = {
            "node": found.spec.node_name,
            "nominatedNode": found.status.nominated_node_name,
            "conditions": conditions,
        }
        if self.source.events is not None:
            try:
                evidence["events"] = [_event(event) for event in self.source.events(namespace, pod)][-_MOST_EVENTS:]
            except (APIError, Unreachable) as error:
                evidence["eventsNotRead"] = str(error)
        words = ["why", found.key]
        if self.record is not None:
            evidence |= _recorded_attempts(self.record, found)
        if found.spec.node_name:
            sentence = "The pod is bound"
        elif found.status.nominated_node_name:
            sentence = "The last attempt ended with a preemption: the pod is nominated for a node"
        elif not conditions or reported(found).startswith("no attempt"):
            sentence = "No attempt is reported yet"
        elif found.spec.scheduling_gates:
            sentence = "The pod has scheduling gates, so it is not attempted"
        else:
            sentence = "The last attempt found no node"
        return self._answer(sentence, evidence, words)

    # -- pods that are not in the cluster -------------------------------------------------------------------------

    def will_it_fit(self, manifest: str) -> Document:
        """Simulate whether the pods of a manifest fit into the cluster as it is, and where they would go.

        manifest: YAML or JSON of pods, Deployments, Jobs and other controllers. The cluster's own pending pods are
        scheduled too.
        """
        cluster, options = self.source.cluster()
        arrivals = _arrivals(manifest, cluster)
        result = Simulation(
            cluster, arrivals, configuration=options.configuration, plugins=options.plugins, gates=options.gates
        ).run()
        own = {arrival.pod.key for arrival in arrivals.pods}
        outcomes = [each for each in result.outcomes if each.origin is Origin.WORKLOAD and each.key in own]
        placed = [each for each in outcomes if each.state.is_placed]
        waiting = Counter((each.owner, each.message) for each in outcomes if each.state is OutcomeState.PENDING)
        total = len(outcomes) + result.refused_count
        sentence = f"{len(placed):,} of {counted(total, 'pod')} of the manifest would get a node"
        if waiting:
            sentence += f", {waiting.total():,} would stay pending"
        if result.refused_count:
            sentence += f", {result.refused_count:,} would be refused by the API server"
        preempted = result.count(OutcomeState.PREEMPTED)
        if preempted:
            sentence += f"; {counted(preempted, 'pod')} would be preempted"
        evidence = {
            "placed": [{"pod": each.key, "node": each.node} for each in placed],
            "pending": [
                {"owner": owner, "pods": count, "message": message} for (owner, message), count in waiting.most_common()
            ],
            "refused": [{"owner": each.owner, "pods": each.count, "message": each.message} for each in result.refused],
            "preempted": [each.key for each in result.outcomes if each.state is OutcomeState.PREEMPTED],
            "problems": [str(problem) for problem in arrivals.summary.problems],
            "remarks": [*arrivals.remarks, *result.remarks],
        }
        files = {_MANIFEST: "the argument manifest"}
        return self._answer(sentence, evidence, ("simulate", "--workload", _MANIFEST), files)

    def how_many_more_fit(self, manifest: str, limit: int = 0) -> Document:
        """Count how many more copies of a pod fit into the cluster until one fits no node, and on which nodes.

        manifest: YAML or JSON of one Pod. limit: stop after so many; 0 for no limit.
        """
        cluster, options = self.source.cluster()
        found = list(parse_objects(_checked(manifest), "manifest", Problems(strict=True)))
        if len(found) != 1 or found[0].kind != "Pod":
            raise InputError("manifest", f"expected one Pod, got {counted(len(found), 'object')}")
        template = PodTemplate(found[0].manifest, "manifest", cluster.admission)
        capacity = estimate(
            cluster,
            template,
            options.read_configuration(),
            registry=options.registry(),
            gates=options.gates,
            options=CapacityOptions(max_limit=max(limit, 0)),
        )
        per_node = capacity.per_node()
        sentence = (
            f"{counted(capacity.replicas, 'more copy fits', 'more copies fit')} on {counted(len(per_node), 'node')}"
        )
        reached = capacity.reason.type == "LimitReached"
        sentence += "; the limit was reached" if reached else "; the next one fits no node"
        evidence = {
            "replicas": capacity.replicas,
            "nodes": [{"node": node, "copies": copies} for node, copies in per_node.items()],
            "end": {"type": capacity.reason.type, "message": capacity.reason.message},
        }
        words = ("capacity", "--verbose", "--podspec", _MANIFEST, *(("--max-limit", str(limit)) if limit > 0 else ()))
        return self._answer(sentence, evidence, words, {_MANIFEST: "the argument manifest"})

    # -- the cluster otherwise -------------------------------------------------------------------------------------

    def what_if_nodes_go(
        self, nodes: list[str] | None = None, zone: str = "", selector: str = "", drained: bool = False
    ) -> Document:
        """Say what becomes of the pods if nodes, a zone or a pool of nodes are lost at once, or are drained.

        Give one of: nodes (names), zone, or selector (labels of the nodes, such as pool=gpu). drained: evict pods as
        kubectl drain does, within disruption budgets, instead of losing the nodes.
        """
        cluster, options = self.source.cluster()
        if sum(map(bool, (nodes, zone, selector))) != 1:
            raise InputError("what_if_nodes_go", "expected one of nodes, zone and selector")
        if nodes:
            names, words = nodes_named(cluster, nodes), [*nodes]
        elif zone:
            names, words = nodes_in_zone(cluster, zone), ["--zone", zone]
        else:
            names, words = nodes_selected(cluster, selector), ["--selector", selector]
        removal = drain(cluster, names, options) if drained else lose(cluster, names, options)
        counts = {fate: removal.count(fate) for fate in Fate}
        phrases = {
            Fate.RESCHEDULED: "come back on other nodes",
            Fate.PENDING: "stay pending",
            Fate.LOST: "are lost",
            Fate.ENDS_WITH_NODE: "end with their nodes",
            Fate.BLOCKED: "block the drain",
        }
        fates = ", ".join(f"{counts[fate]:,} {phrase}" for fate, phrase in phrases.items() if counts[fate])
        sentence = f"Of {counted(len(removal.pods), 'pod')} on {counted(len(names), 'node')}: {fates or 'none change'}"
        groups: Counter[tuple[str, str, str]] = Counter()
        for pod in removal.pods:
            groups[f"{pod.namespace}/{pod.owner or pod.name}", pod.fate.value, pod.reason] += 1
        evidence = {
            "nodes": sorted(names),
            "pods": [
                {"owner": owner, "fate": fate, "pods": count, "reason": reason}
                for (owner, fate, reason), count in groups.most_common()
            ],
            "preempted": [outcome.key for outcome in removal.preempted],
            "remarks": removal.remarks,
        }
        return self._answer(sentence, evidence, ("what-if", "drain" if drained else "lose", *words))

    def what_does_configuration_change(self, configuration: str, manifest: str = "") -> Document:
        """Compare the scheduler's configuration with another one: which pods would land elsewhere, win or lose.

        configuration: a KubeSchedulerConfiguration in YAML or JSON. manifest: pods or controllers to schedule; without
        them, the running pods of controllers are scheduled as if they were new.
        """
        cluster, options = self.source.cluster()
        candidate = load_yaml(_checked(configuration), "configuration")
        if not isinstance(candidate, Mapping):
            raise InputError("configuration", "expected a KubeSchedulerConfiguration")
        arrivals = _arrivals(manifest, cluster) if manifest else Arrivals()
        other = SchedulerOptions(candidate, options.plugins, options.gates)
        names = {profile.scheduler_name for side in (options, other) for profile in side.read_configuration().profiles}
        found = compare(
            cluster if manifest else rescheduled(cluster, names),
            arrivals,
            baseline=options,
            candidate=other,
            names=("now", "with the configuration"),
        )
        changes = {change: found.count(change) for change in PodChange}
        differing = ", ".join(f"{count:,} {change.value}" for change, count in changes.items() if count)
        total = len(found.baseline.result.outcomes)
        sentence = f"Of {counted(total, 'pod')}, with the other configuration: {differing or 'none changes'}"
        evidence = {
            "pods": [_difference(each) for each in found.pods],
            "metrics": [
                {"metric": name, "now": round(each.baseline, 4), "then": round(each.candidate, 4)}
                for name, each in found.metrics.items()
                if each.baseline != each.candidate
            ],
        }
        files = {_CONFIGURATION: "the argument configuration"}
        workload = ("--workload", _MANIFEST) if manifest else ("--reschedule",)
        if manifest:
            files[_MANIFEST] = "the argument manifest"
        return self._answer(sentence, evidence, ("compare", *workload), files, candidate=_CONFIGURATION)

    # -- answers ----------------------------------------------------------------------------------------------------

    def _answer(
        self,
        sentence: str,
        evidence: Mapping[str, Any],
        words: Sequence[str],
        files: Mapping[str, str] | None = None,
        *,
        candidate: str = "",
    ) -> Document:
        found = {**evidence, **dict(self.source.age())}
        command = self.source.command(*words, candidate=candidate)
        return Answer(f"{sentence}.", found, command, files or {}).document()

    def _explain(self, pod: str, namespace: str, *, counterfactuals: bool, target: str | None = None) -> Explanation:
        cluster, options = self.source.cluster()
        return explain(cluster, f"{namespace}/{pod}", options, target=target, counterfactuals=counterfactuals)


def _sentence(found: Explanation) -> str:
    nodes = counted(len(found.evaluated), "node")
    sentence = f"The pod fits on {found.feasible:,} of {nodes}"
    if found.bound_to:
        sentence = f"The pod is bound; evaluated as if it was not there, it fits on {found.feasible:,} of {nodes}"
    if found.gate:
        sentence += "; it is not attempted, because a plugin does not let it into the queue"
    if found.preemption is not None:
        victims = counted(len(found.preemption.victims), "pod")
        sentence += f"; preemption would evict {victims} for it"
    return sentence


def _verdict(found: Explanation) -> Document:
    """What every question about one pod answers with."""
    evidence: Document = {
        "pod": found.pod,
        "boundTo": found.bound_to,
        "nodes": len(found.evaluated),
        "feasible": found.feasible,
        "message": found.message,
    }
    if found.reported:
        evidence["reported"] = found.reported
    if found.gate:
        evidence["gate"] = found.gate
    if (preemption := found.preemption) is not None:
        evidence["preemption"] = {
            "node": preemption.node,
            "victims": preemption.victims,
            "budgetViolations": preemption.violations,
        }
    return evidence | ({"remarks": found.remarks} if found.remarks else {})


def _scored(node: NodeEvaluation) -> Document:
    scores = [{"plugin": score.plugin, "score": score.weighted} for score in node.scores]
    rejections = [{"plugin": each.plugin, "reasons": each.status.reasons} for each in node.rejections]
    found: Document = {"node": node.node, "total": node.total, "rank": node.rank, "scores": scores}
    return found | ({"rejectedBy": rejections} if rejections else {})


def _difference(found: PodDifference) -> Document:
    def side(outcome: PodOutcome | None) -> Document | None:
        return None if outcome is None else {"state": outcome.state.value, "node": outcome.node}

    return {
        "pod": found.outcome.key,
        "change": found.change.value,
        "now": side(found.baseline),
        "then": side(found.candidate),
        "message": found.reason,
    }


def _event(event: Mapping[str, Any]) -> Document:
    series = event.get("series") or {}
    time = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    count = series.get("count") or event.get("count") or 1
    return {"time": time, "reason": event.get("reason"), "message": event.get("message"), "count": count}


def _recorded_attempts(record: Path, pod: Pod) -> Document:
    """The last decisions about a pod in a flight record, a file or a folder, the newest last.

    A record that is damaged, or cut off because its scheduler still runs, counts up to there; ``recordEnds`` says so.
    Raises InputError for another file.
    """
    attempts: list[Document] = []
    found: Document = {}
    paths = segment_paths(record) if record.is_dir() else [record]
    if not paths:
        raise InputError(str(record), "has no file of a flight record")
    for segment in map(Segment, paths):
        try:
            for entry in (entry for chunk in segment.chunks() for entry in chunk.entries):
                if isinstance(entry, Decided) and entry.uid == pod.metadata.uid:
                    decided = {"node": entry.node, "message": entry.message, "scoredNodes": entry.candidates}
                    attempts.append(decided | {"nominatedNode": entry.nominated, "victims": len(entry.victims)})
                elif isinstance(entry, AttemptEnded) and entry.uid == pod.metadata.uid and attempts:
                    attempts[-1] |= {"attempt": entry.attempt, "result": entry.result}
        except InputError as error:
            found["recordEnds"] = str(error)
    return found | {"recordedAttempts": len(attempts), "lastRecordedAttempts": attempts[-_BEST_SHOWN:]}


def _arrivals(manifest: str, cluster: ClusterObjects) -> Arrivals:
    """The workload of a manifest. Raises InputError."""
    problems = Problems(strict=False)
    sources = parse_objects(_checked(manifest), "manifest", problems)
    arrivals = Arrivals.of_sources(sources, problems, cluster=cluster, subject="manifest")
    if len(arrivals.pods) > _MOST_PODS:
        raise InputError("manifest", f"expected at most {_MOST_PODS:,} pods, got {len(arrivals.pods):,}")
    return arrivals


def _checked(text: str) -> bytes:
    """The bytes of a manifest or configuration. Raises InputError for one that is too long."""
    if len(text) > _MOST_CHARACTERS:
        raise InputError("manifest", f"expected at most {_MOST_CHARACTERS:,} characters, got {len(text):,}")
    return text.encode(errors="replace")
