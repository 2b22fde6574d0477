"""The pending pods of a cluster by cause: why they wait, and with which change how many of them would fit.

Pods wait for the same cause if the same reasons keep them from all nodes, whatever the numbers of nodes. The first pod
of a cause stands for the others: its counterfactuals are searched for, and each is tried with all pods of the cause
beside each other. Causes whose best change helps most pods come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kubestow import gc_tuning
from kubestow.api.core import Pod
from kubestow.cluster.pods.shapes import Shape
from kubestow.engine.explanation.counterfactuals import Counterfactual
from kubestow.engine.explanation.explain import explain_with, helpful_counterfactuals
from kubestow.engine.explanation.explanation import Explanation, reasons_text
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import OfflineScheduler, SchedulerOptions
from kubestow.errors import KubestowError
from kubestow.reports.model import Block, Paragraph, Table, counted
from kubestow.reports.text import Displayed

#: For so many causes, those with most pods, changes are searched for.
_MOST_SEARCHED = 20
_EXAMPLES = 3
_CHANGES_SHOWN = 3
_PREEMPTS = "it fits once pods of lower priority are evicted, which the scheduler does in its next attempt"


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change with which ``helped`` pods of a cause fit beside each other; its text is about the first pod."""

    counterfactual: Counterfactual
    helped: int

    @property
    def text(self) -> str:
        """What to do, in one line."""
        return self.counterfactual.change.text


@dataclass(frozen=True, slots=True)
class PendingCause:
    """Pods (namespace/name) that wait for the same cause.

    ``reason`` says why in plain words, ``message`` is what the scheduler would report of the first pod, empty where it
    would report none. ``remedies`` are the changes that help most pods, the smaller of equal ones first; empty also if
    they were not ``searched`` for.
    """

    reason: str
    message: str
    pods: tuple[str, ...]
    remedies: tuple[Remedy, ...] = ()
    searched: bool = False

    @property
    def helped(self) -> int:
        """How many of the pods the best change helps."""
        return self.remedies[0].helped if self.remedies else 0

    def document(self) -> dict[str, Any]:
        """The cause as plain data."""
        return {
            "reason": self.reason,
            "message": self.message,
            "count": len(self.pods),
            "pods": list(self.pods),
            "searched": self.searched,
            "remedies": [each.counterfactual.document() | {"helped": each.helped} for each in self.remedies],
        }


@dataclass(frozen=True, slots=True, repr=False)
class PendingPods(Displayed):
    """The pending pods of a cluster, or some of them, by cause.

    ``nodes`` is the number of nodes, ``remarks`` are about the whole cluster.
    """

    causes: tuple[PendingCause, ...]
    nodes: int
    remarks: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """The number of pending pods."""
        return sum(len(cause.pods) for cause in self.causes)

    def document(self) -> dict[str, Any]:
        """The pods as plain data."""
        return {
            "kind": "PendingPods",
            "pending": self.count,
            "nodes": self.nodes,
            "causes": [cause.document() for cause in self.causes],
            "remarks": list(self.remarks),
        }

    def blocks(self) -> Iterator[Block]:
        """The numbers, and a row for each cause."""
        if not self.causes:
            yield Paragraph("no pod is pending")
            return
        pods = counted(self.count, "pod is pending", "pods are pending")
        yield Paragraph(f"{pods} for {counted(len(self.causes), 'cause')}, the most common remedy first")
        yield Paragraph("")
        table = Table("pods", "cause", "what would help", "helps", "examples", right=("pods", "helps"))
        for cause in self.causes:
            helps = f"{cause.helped:,}" if cause.remedies else "-"
            table.add(f"{len(cause.pods):,}", cause.reason, self._help(cause), helps, examples(cause.pods))
        yield table

    def _help(self, cause: PendingCause) -> str:
        if cause.remedies:
            first, *others = cause.remedies
            more = [f"or {each.text} ({each.helped:,})" for each in others[: _CHANGES_SHOWN - 1]]
            return "\n".join((first.text, *more))
        return "no small change was found" if cause.searched else "-"


def examples(pods: Sequence[str]) -> str:
    """The first pods of a list, with an ellipsis if there are more."""
    return ", ".join(pods[:_EXAMPLES]) + (", …" if len(pods) > _EXAMPLES else "")


def pending_by_cause(
    cluster: ClusterObjects,
    pods: Iterable[Pod],
    options: SchedulerOptions | None = None,
    *,
    counterfactuals: bool = True,
) -> PendingPods:
    """The causes for which those of some pods of a cluster that have no node are pending.

    With ``counterfactuals``, changes are searched for of the causes with most pods. Raises ConfigurationError, and
    PluginError when a plugin cannot be constructed.
    """
    with gc_tuning.paused():
        search = _Search(cluster, options or SchedulerOptions())
        pending = (pod for pod in pods if not pod.spec.node_name)
        causes = search.causes(pending, counterfactuals=counterfactuals)
        ordered = sorted(causes, key=lambda cause: (-cause.helped, -len(cause.pods), cause.reason))
        return PendingPods(tuple(ordered), len(search.scheduler.cache.nodes), search.scheduler.absent)


@dataclass(slots=True)
class _Group:
    """Pods of one cause. ``reason`` is the cause where the engine did not decide about them.

    ``waits_for`` are the reasons of those about which it did, as :meth:`Explanation.waits_for` returns them.
    """

    reason: str = ""
    message: str = ""
    pods: list[Pod] = field(default_factory=list)
    waits_for: list[Mapping[str, int]] = field(default_factory=list)

    def cause(self) -> PendingCause:
        reason = self.reason or reasons_text(self.waits_for)
        return PendingCause(reason, self.message, tuple(pod.key for pod in self.pods))


class _Search:
    """The pending pods of one cluster."""

    def __init__(self, cluster: ClusterObjects, options: SchedulerOptions) -> None:
        self.scheduler = OfflineScheduler(cluster, options)
        #: Explanations by shape, or the messages of plugins that fail: they are the same for copies of a pod.
        self._explained: dict[Shape, Explanation | str] = {}

    def causes(self, pods: Iterable[Pod], *, counterfactuals: bool) -> list[PendingCause]:
        groups: dict[object, _Group] = {}
        for pod in pods:
            explained = _without_decision(pod, self.scheduler) or self._explain(pod)
            if isinstance(explained, str) or explained.preemption is not None:
                reason = explained if isinstance(explained, str) else _PREEMPTS
                group = groups.setdefault(reason, _Group(reason))
            else:
                waits_for = explained.waits_for()
                key = (explained.profile, bool(explained.gate), frozenset(waits_for))
                group = groups.setdefault(key, _Group(message=explained.message))
                group.waits_for.append(waits_for)
            group.pods.append(pod)
        largest = sorted(groups.values(), key=lambda group: -len(group.pods))
        searched = [group for group in largest if group.waits_for][:_MOST_SEARCHED] if counterfactuals else []
        with_remedies = {id(group): self._with_remedies(group) for group in searched}
        return [with_remedies.get(id(group)) or group.cause() for group in largest]

    def _explain(self, pod: Pod) -> Explanation | str:
        """The explanation of a pod, or the message of the plugin that fails."""
        info = self.scheduler.cache.shapes.info(pod)
        # Claims that are made for a pod differ from those of its copies.
        own_claims = info.spec.resource_claims or any(volume.ephemeral is not None for volume in info.spec.volumes)
        if not own_claims and info.shape in self._explained:
            return self._explained[info.shape]
        explained: Explanation | str
        try:
            explained = explain_with(self.scheduler, pod, counterfactuals=False)
        except KubestowError as error:
            explained = str(error)
        self._explained[info.shape] = explained
        return explained

    def _with_remedies(self, group: _Group) -> PendingCause:
        cause = group.cause()
        explanation = explain_with(self.scheduler, group.pods[0])
        if not explanation.searched:  # it fits
            return cause
        helpful = helpful_counterfactuals(self.scheduler, explanation, group.pods)
        return replace(cause, remedies=tuple(Remedy(*each) for each in helpful), searched=True)


def _without_decision(pod: Pod, scheduler: OfflineScheduler) -> str:
    """Why no scheduler of the configuration decides about a pod, empty if one does."""
    if pod.metadata.deletion_timestamp is not None:
        return "it is being deleted"
    if pod.spec.scheduler_name not in scheduler.profiles:
        return f"spec.schedulerName is {pod.spec.scheduler_name}, which no profile of the configuration has"
    if pod.status.nominated_node_name:
        nodes = scheduler.cache.all_nodes()
        position = nodes.position(pod.status.nominated_node_name)
        if position is not None and any(other.terminating for other in nodes.pods(position)):
            return "it has a nominated node, and waits until the pods that were evicted for it have ended"
        # Since 1.35 a pod is also nominated to the node that it is to be bound to.
        return "it has a nominated node, and waits on Permit, or for what is done before the binding, such as volumes"
    return ""
