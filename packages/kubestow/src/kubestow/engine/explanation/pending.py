"""The pending pods of a cluster by cause: why they wait, and with which change how many of them would fit.

Pods wait for the same cause if the same reasons keep them from all nodes, whatever the numbers of nodes, and they lack
the same resources; or if the same plugin fails in the same way. The first pod of a cause stands for the others: its
counterfactuals are searched for, and each is tried with all pods of the cause beside each other. Causes whose best
change helps most pods come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from kubestow import gc_tuning
from kubestow.api.core import Pod
from kubestow.cluster.pods.shapes import Shape
from kubestow.engine.explanation.counterfactuals import Counterfactual
from kubestow.engine.explanation.explain import (
    POD_SCHEDULED,
    explain_with,
    helpful_counterfactuals,
    largest_allocatable,
)
from kubestow.engine.explanation.explanation import Explanation, reasons_text
from kubestow.engine.explanation.plain_words import reasons_in, scarce_resources
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import OfflineScheduler, SchedulerOptions
from kubestow.errors import KubestowError, PluginError
from kubestow.reports.model import Block, Paragraph, Table, counted
from kubestow.reports.text import Displayed
from kubestow.rules.pods import condition_of

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
    would report none. ``missing`` says what the cluster does not have for the first pod. ``remedies`` are the changes
    that help most pods, the smaller of equal ones first; empty also if they were not ``searched`` for.
    """

    reason: str
    message: str
    pods: tuple[str, ...]
    missing: tuple[str, ...] = ()
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
            **({"missing": list(self.missing)} if self.missing else {}),
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
        if cause.missing:
            return "\n".join(cause.missing)
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
        remarks = (*search.scheduler.absent, *search.other_reasons())
        return PendingPods(tuple(ordered), len(search.scheduler.cache.nodes), remarks)


@dataclass(slots=True)
class _Group:
    """Pods of one cause. ``reason`` is the cause where the engine did not decide about them.

    ``scarce`` are the resources of which no node has what these pods request, and ``waits_for`` the reasons of those
    about which the engine decided, as :meth:`Explanation.waits_for` returns them.
    """

    reason: str = ""
    message: str = ""
    missing: tuple[str, ...] = ()
    scarce: tuple[str, ...] = ()
    pods: list[Pod] = field(default_factory=list)
    waits_for: list[Mapping[str, int]] = field(default_factory=list)

    def cause(self) -> PendingCause:
        reason = self.reason or "; ".join((*self.scarce, reasons_text(self.waits_for)))
        return PendingCause(reason, self.message, tuple(pod.key for pod in self.pods), self.missing)


class _Undecided(NamedTuple):
    """Why the engine did not decide about a pod: the ``key`` of its cause, and the reason in words."""

    key: object
    reason: str


class _Search:
    """The pending pods of one cluster."""

    def __init__(self, cluster: ClusterObjects, options: SchedulerOptions) -> None:
        self.scheduler = OfflineScheduler(cluster, options)
        #: Explanations by shape, or the failures of plugins: they are the same for copies of a pod.
        self._explained: dict[Shape, Explanation | _Undecided] = {}
        #: What the scheduler last wrote about pods for which other reasons are found here.
        self._other_messages: list[str] = []

    def causes(self, pods: Iterable[Pod], *, counterfactuals: bool) -> list[PendingCause]:
        groups: dict[object, _Group] = {}
        for pod in pods:
            reason = _without_decision(pod, self.scheduler)
            explained = _Undecided(reason, reason) if reason else self._explain(pod)
            if isinstance(explained, _Undecided):
                group = groups.setdefault(explained.key, _Group(explained.reason))
            elif explained.preemption is not None:
                group = groups.setdefault(_PREEMPTS, _Group(_PREEMPTS))
            else:
                waits_for, scarce = explained.waits_for(), tuple(self._scarce(pod, explained))
                key = (explained.profile, bool(explained.gate), frozenset(waits_for), scarce)
                new = _Group(message=explained.message, missing=explained.missing, scarce=scarce)
                group = groups.setdefault(key, new)
                group.waits_for.append(waits_for)
                self._compare(pod, explained.message)
            group.pods.append(pod)
        largest = sorted(groups.values(), key=lambda group: -len(group.pods))
        searched = [group for group in largest if group.waits_for][:_MOST_SEARCHED] if counterfactuals else []
        with_remedies = {id(group): self._with_remedies(group) for group in searched}
        return [with_remedies.get(id(group)) or group.cause() for group in largest]

    def _compare(self, pod: Pod, message: str) -> None:
        condition = condition_of(pod.status, POD_SCHEDULED)
        if condition is not None:
            found = {reason for _, reason in reasons_in(message)}
            if any(reason not in found for _, reason in reasons_in(condition.message)):
                self._other_messages.append(condition.message)

    def other_reasons(self) -> Iterator[str]:
        """A remark about the pods for which the scheduler's last message has reasons that are not found here."""
        if self._other_messages:
            pods = counted(len(self._other_messages), "pod")
            yield (
                f"the scheduler's last message about {pods} has other reasons, because the cluster has changed since,"
                f" or it has another configuration than is given here: {self._other_messages[0]}"
            )

    def _scarce(self, pod: Pod, explained: Explanation) -> Iterator[str]:
        if not explained.missing:
            return
        cache = self.scheduler.cache
        yield from scarce_resources(cache.shapes.info(pod).shape.requests, largest_allocatable(cache.all_nodes()))

    def _explain(self, pod: Pod) -> Explanation | _Undecided:
        """The explanation of a pod, or the plugin that fails."""
        info = self.scheduler.cache.shapes.info(pod)
        # Claims that are made for a pod differ from those of its copies.
        own_claims = info.spec.resource_claims or any(volume.ephemeral is not None for volume in info.spec.volumes)
        if not own_claims and info.shape in self._explained:
            return self._explained[info.shape]
        explained: Explanation | _Undecided
        try:
            explained = explain_with(self.scheduler, pod, counterfactuals=False)
        except PluginError as error:  # its text may have the pod's name
            kind = error.problem.partition(":")[0]
            explained = _Undecided((error.plugin, error.extension_point, kind), str(error))
        except KubestowError as error:
            explained = _Undecided(str(error), str(error))
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
