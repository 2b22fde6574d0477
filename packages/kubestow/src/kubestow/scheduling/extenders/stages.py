"""The extender stages: filter, prioritize, preempt and bind, each over all extenders that are interested in a pod.

The extenders are called in kube-scheduler's order, ignorable ones last: filter and preempt one after the other, each
with the nodes that the previous ones accepted, prioritize concurrently. A failure of an ignorable extender is logged
and skipped (semantics 5.5, 9.4).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Any, Protocol

from kubestow import config
from kubestow.api.extender import MAX_SCORE as MAX_EXTENDER_SCORE
from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import ExtenderError
from kubestow.framework.interface import MAX_SCORE, Victims
from kubestow.framework.status import SUCCESS, Code, Status
from kubestow.log_fields import fields


class PodGone(ExtenderError):
    """The pod was deleted before the extender could be called, which is no failure of the extender."""


@dataclass(frozen=True, slots=True)
class ExtenderFilterResponse:
    """One extender's response to filter: the nodes that pass, and by node name why others do not."""

    passed: Sequence[str]
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExtenderVictims:
    """One extender's response to preempt for one node: the victims by uid, and how many violate a budget."""

    uids: Sequence[str]
    violations: int = 0


class Extender(Protocol):
    """One configured extender: an external service that filters, scores, preempts or binds beside the plugins.

    The HTTP client implements it (:mod:`kubestow.client.http_extender`). Nodes are given by name, because rows of the
    node table move while an extender is awaited (semantics 5.5, 9.4). Every method raises ExtenderError.
    """

    @property
    def settings(self) -> config.Extender:
        """Its entry in the configuration."""

    async def filter(self, pod: PodInfo, names: Sequence[str]) -> ExtenderFilterResponse:
        """Which of the named nodes pass."""

    async def prioritize(self, pod: PodInfo, names: Sequence[str]) -> Sequence[tuple[str, int]]:
        """Raw scores of the named nodes, 0 to 10."""

    async def preempt(self, pod: PodInfo, victims_by_node: Mapping[str, Victims]) -> Mapping[str, ExtenderVictims]:
        """Which candidate nodes remain, with the victims on each."""

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        """Bind the pod."""


_log = logging.getLogger(__name__)

EXTENDER = "Extender"
"""The name under which the extenders, taken together, appear among the plugins that rejected a pod."""

#: Scores are summed as int64; the sum of all extenders' scores for a node is clamped well inside that range.
_MAX_SUM = 2**60


@dataclass(slots=True)
class ExtenderFilterResult:
    """The filter results of all extenders: the nodes that ``passed``, and a status for every other node sent."""

    passed: list[str] = field(default_factory=list)
    rejected: dict[str, Status] = field(default_factory=dict)

    def add(self, response: ExtenderFilterResponse) -> None:
        """Apply one more extender's response about the nodes that had passed."""
        passed = set(response.passed)
        if len(passed) == len(self.passed) and not response.failed and not response.unresolvable:
            return
        self.rejected |= {name: Status.unresolvable() for name in self.passed if name not in passed}
        self.rejected |= {name: Status.unschedulable(reason) for name, reason in response.failed.items()}
        self.rejected |= {name: Status.unresolvable(reason) for name, reason in response.unresolvable.items()}
        self.passed = [name for name in self.passed if name in passed]
        for name in self.passed:
            self.rejected.pop(name, None)

    @property
    def vetoed(self) -> frozenset[str]:
        """The nodes that were rejected as unresolvable, so that preemption cannot help there."""
        unresolvable = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return frozenset(name for name, status in self.rejected.items() if status.code is unresolvable)


def takes_part(settings: config.Extender, pod: PodInfo) -> bool:
    """Whether an extender with these settings filters, scores or preempts for a pod."""
    return _decides(settings) and _manages({resource.name for resource in settings.managed_resources}, pod)


def _decides(settings: config.Extender) -> bool:
    return bool(settings.filter_verb or settings.prioritize_verb or settings.preempt_verb)


def _manages(resources: Set[str], pod: PodInfo) -> bool:
    """Whether an extender of some resources is interested in a pod: there are none, or it requests or limits one."""
    if not resources:
        return True
    containers = chain(pod.spec.containers, pod.spec.init_containers)
    return any(resources & (c.resources.requests.keys() | c.resources.limits.keys()) for c in containers)


class Extenders:
    """All extenders of a scheduler."""

    def __init__(self, cluster: Cluster, extenders: Sequence[Extender] = ()) -> None:
        self._cluster = cluster
        self._extenders = sorted(extenders, key=lambda extender: extender.settings.ignorable)
        self._managed = {
            id(extender): frozenset(resource.name for resource in extender.settings.managed_resources)
            for extender in extenders
        }
        #: The last failure of each extender and verb that has been logged and not resolved since.
        self._logged_failures: dict[tuple[str, str], str] = {}
        #: How many prioritize calls are in progress.
        self.prioritizing = 0

    def __bool__(self) -> bool:
        return bool(self._extenders)

    def take_part(self, pod: PodInfo) -> bool:
        """Whether any extender filters, scores or preempts for a pod."""
        return any(_decides(extender.settings) for extender in self._interested(pod))

    def take_part_in_preemption(self, pod: PodInfo) -> bool:
        """Whether any extender processes the preemption candidates of a pod."""
        return any(extender.settings.preempt_verb for extender in self._interested(pod))

    def _interested(self, pod: PodInfo) -> Sequence[Extender]:
        return [extender for extender in self._extenders if _manages(self._managed[id(extender)], pod)]

    # -- filter and prioritize -----------------------------------------------------------------------------------

    async def filter(self, pod: PodInfo, names: Sequence[str]) -> ExtenderFilterResult:
        """Filter the named nodes by one extender after another. Raises ExtenderError."""
        result = ExtenderFilterResult(list(names))
        for extender in self._interested(pod):
            if not result.passed:
                break
            if not extender.settings.filter_verb:
                continue
            try:
                response = await extender.filter(pod, result.passed)
            except ExtenderError as error:
                self._log_failure(error)
                if not extender.settings.ignorable:
                    raise
            else:
                mentioned = chain(response.failed, response.unresolvable)
                self._succeeded(extender, "filter", mentioned=mentioned, sent=result.passed)
                result.add(response)
        return result

    async def prioritize(self, pod: PodInfo, names: Sequence[str]) -> Mapping[str, int]:
        """The weighted scores that the extenders add to nodes, by name. An extender that fails adds nothing."""
        scoring = [extender for extender in self._interested(pod) if extender.settings.prioritize_verb]
        results = await asyncio.gather(*(self._prioritize(extender, pod, names) for extender in scoring))
        totals: dict[str, int] = {}
        for extender, scores in zip(scoring, results, strict=True):
            factor = extender.settings.weight * (MAX_SCORE // MAX_EXTENDER_SCORE)
            for name, score in scores:
                totals[name] = totals.get(name, 0) + score * factor
        if totals and max(max(totals.values()), -min(totals.values())) > _MAX_SUM:
            return {name: min(max(total, -_MAX_SUM), _MAX_SUM) for name, total in totals.items()}
        return totals

    async def _prioritize(self, extender: Extender, pod: PodInfo, names: Sequence[str]) -> Sequence[tuple[str, int]]:
        self.prioritizing += 1
        try:
            scores = await extender.prioritize(pod, names)
        except ExtenderError as error:
            self._log_failure(error)
            return ()
        finally:
            self.prioritizing -= 1
        self._succeeded(extender, "prioritize", mentioned=map(itemgetter(0), scores), sent=names)
        return scores

    # -- preempt -------------------------------------------------------------------------------------------------

    async def preempt(self, pod: PodInfo, victims_by_node: Mapping[str, Victims]) -> Mapping[str, Victims]:
        """Narrow down the preemption candidates by one extender after another. Raises ExtenderError."""
        for extender in self._interested(pod):
            if not extender.settings.preempt_verb:
                continue
            try:
                response = await extender.preempt(pod, victims_by_node)
                remaining = self._resolve_victims(extender, victims_by_node, response)
            except ExtenderError as error:
                self._log_failure(error)
                if not extender.settings.ignorable:
                    raise
            else:
                self._succeeded(extender, "preempt")
                victims_by_node = remaining
                if not victims_by_node:
                    break
        return victims_by_node

    async def confirm(self, pod: PodInfo, node_name: str, victims: Victims) -> bool:
        """Whether the extenders accept a preemption on one node with exactly these victims. A failure refuses it."""
        if not self.take_part_in_preemption(pod):
            return True
        try:
            remaining = await self.preempt(pod, {node_name: victims})
        except ExtenderError as error:
            _log.warning(
                "extenders failed at preemption for pod %s: %s",
                pod.key,
                error.problem,
                extra=_fields(error, pod=pod.key),
            )
            return False
        accepted = {victim.uid for victim in remaining[node_name].pods} if node_name in remaining else set()
        return accepted == {victim.uid for victim in victims.pods}

    def _resolve_victims(
        self, extender: Extender, sent: Mapping[str, Victims], response: Mapping[str, ExtenderVictims]
    ) -> Mapping[str, Victims]:
        """The pods behind the uids of a response. A node without victims is an error, or dropped if ignorable."""
        remaining: dict[str, Victims] = {}
        for name, victims in response.items():
            pods = self._evictable_pods(extender, name, sent.get(name))
            unknown = next((uid for uid in victims.uids if uid not in pods), None)
            if unknown is not None:
                claim = f"claims to preempt pod (UID: {unknown}) on node: {name}"
                problem = f"extender: {_name(extender)} {claim}, but the pod is not found on that node"
                raise ExtenderError(_name(extender), "preempt", problem)
            if victims.uids:
                remaining[name] = Victims(tuple(pods[uid] for uid in dict.fromkeys(victims.uids)), victims.violations)
            elif not extender.settings.ignorable:
                problem = f'expected at least one victim pod on node "{name}"'
                raise ExtenderError(_name(extender), "preempt", problem)
        return {name: victims for name, victims in remaining.items() if name in self._cluster.nodes.rows}

    def _evictable_pods(self, extender: Extender, name: str, sent: Victims | None) -> Mapping[str, PodInfo]:
        """The pods that may be victims on a node: those sent, even if deleted since, and those that are on it."""
        row = self._cluster.nodes.rows.get(name)
        if row is None and sent is None:
            raise ExtenderError(_name(extender), "preempt", f'nodeinfo not found for node name "{name}"')
        on_node = {} if row is None else self._cluster.nodes.pods[row]
        return {pod.uid: pod for pod in (() if sent is None else sent.pods)} | on_node

    # -- bind ----------------------------------------------------------------------------------------------------

    async def bind(self, pod: PodInfo, node_name: str) -> Status | None:
        """Bind a pod by the first interested extender that binds.

        None when there is none; a skip when it failed and is ignorable. After a failure the pod may be bound all the
        same.
        """
        extender = next((one for one in self._interested(pod) if one.settings.bind_verb), None)
        if extender is None:
            return None
        try:
            await extender.bind(pod, node_name)
        except ExtenderError as error:
            self._log_failure(error)
            return Status.skip() if extender.settings.ignorable else Status.error(error.problem)
        self._succeeded(extender, "bind")
        return SUCCESS

    # -- failures ------------------------------------------------------------------------------------------------

    def _log_failure(self, error: ExtenderError) -> None:
        """Log a failure once, until the extender succeeds again or fails in another way."""
        if isinstance(error, PodGone):
            return
        logged = self._logged_failures.get((error.extender, error.verb))
        self._logged_failures[error.extender, error.verb] = error.problem
        level = logging.DEBUG if logged == error.problem else logging.WARNING
        _log.log(level, "%s", error, extra=_fields(error))

    def _succeeded(
        self, extender: Extender, verb: str, *, mentioned: Iterable[str] = (), sent: Collection[str] = ()
    ) -> None:
        """Log that an extender works again. Nodes in its response that were not sent are logged and ignored."""
        if unknown := set(mentioned).difference(sent):
            problem = f'response contains node "{min(unknown)}", which was not sent'
            self._log_failure(ExtenderError(_name(extender), verb, problem))
        elif self._logged_failures and self._logged_failures.pop((_name(extender), verb), None) is not None:
            _log.info(
                "extender %s works again at %s",
                _name(extender),
                verb,
                extra=fields(extender=_name(extender), verb=verb),
            )


def _name(extender: Extender) -> str:
    return extender.settings.url_prefix


def _fields(error: ExtenderError, **others: str) -> dict[str, Any]:
    """The fields of a log record about a failed extender."""
    return fields(extender=error.extender, verb=error.verb, err=error.problem, **others)
