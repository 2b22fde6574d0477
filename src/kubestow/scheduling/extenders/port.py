"""Extenders: services outside the scheduler that take part in its decisions (semantics 5.5, 9.4).

What an extender is to a decision, without any HTTP: :class:`Extender` is the port, :class:`Extenders` asks those that
are configured, in the reference's order and with its rules for what fails. Nodes go by name here: while an extender
thinks, the world moves, and rows of the node table with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Protocol

from kubestow import config
from kubestow.api.extender import MAX_SCORE as MAX_EXTENDER_SCORE
from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import ExtenderError
from kubestow.framework.interface import MAX_SCORE, Victims
from kubestow.framework.status import SUCCESS, Status

__all__ = ["EXTENDER", "Extender", "Extenders", "Filtered", "Opinion", "PodGone", "Spared"]

_log = logging.getLogger(__name__)

EXTENDER = "Extender"
"""The name under which all extenders together appear among the plugins that refused a pod."""

#: Scores add up in int64; what one node gets from all extenders is kept far from its end.
_MOST = 2**60


class PodGone(ExtenderError):
    """The pod is gone before anybody could be asked about it, which is no extender's fault."""


@dataclass(frozen=True, slots=True)
class Filtered:
    """An extender's answer to filter: the nodes that are left, and reasons for others by name."""

    passed: Sequence[str]
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Spared:
    """An extender's answer to preempt for one node: who is to be evicted, by uid."""

    uids: Sequence[str]
    violations: int = 0


class Extender(Protocol):
    """One extender. All its methods raise ExtenderError."""

    @property
    def settings(self) -> config.Extender:
        """How it is configured."""

    async def filter(self, pod: PodInfo, names: Sequence[str]) -> Filtered:
        """Which of some nodes are left."""

    async def prioritize(self, pod: PodInfo, names: Sequence[str]) -> Sequence[tuple[str, int]]:
        """Scores of nodes, as they are."""

    async def preempt(self, pod: PodInfo, offers: Mapping[str, Victims]) -> Mapping[str, Spared]:
        """Which of some candidates are left, and whom to evict there."""

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        """Bind a pod."""


@dataclass(slots=True)
class Opinion:
    """What all extenders together say of the nodes: who ``passed``, and a status for every other they were sent."""

    passed: list[str] = field(default_factory=list)
    refused: dict[str, Status] = field(default_factory=dict)

    def take(self, answer: Filtered) -> None:
        """One more extender's answer about the nodes that had passed."""
        passed = set(answer.passed)
        if len(passed) == len(self.passed) and not answer.failed and not answer.unresolvable:
            return
        self.refused |= {name: Status.unresolvable() for name in self.passed if name not in passed}
        self.refused |= {name: Status.unschedulable(reason) for name, reason in answer.failed.items()}
        self.refused |= {name: Status.unresolvable(reason) for name, reason in answer.unresolvable.items()}
        self.passed = [name for name in self.passed if name in passed]
        for name in self.passed:
            self.refused.pop(name, None)


class Extenders:
    """All extenders of a scheduler: those that may be ignored after the others, as configured otherwise."""

    def __init__(self, cluster: Cluster, extenders: Sequence[Extender] = ()) -> None:
        self._cluster = cluster
        self._extenders = sorted(extenders, key=lambda extender: extender.settings.ignorable)
        self._managed = {
            id(extender): frozenset(resource.name for resource in extender.settings.managed_resources)
            for extender in extenders
        }
        self._complaints: dict[tuple[str, str], str] = {}
        #: How many are being asked for scores.
        self.prioritizing = 0

    def __bool__(self) -> bool:
        return bool(self._extenders)

    def take_part(self, pod: PodInfo) -> bool:
        """Whether any extender has a say in where a pod goes."""
        return any(
            extender.settings.filter_verb or extender.settings.prioritize_verb or extender.settings.preempt_verb
            for extender in self._interested(pod)
        )

    def _interested(self, pod: PodInfo) -> Sequence[Extender]:
        return [extender for extender in self._extenders if self._is_interested(extender, pod)]

    def _is_interested(self, extender: Extender, pod: PodInfo) -> bool:
        managed = self._managed[id(extender)]
        if not managed:
            return True
        containers = chain(pod.spec.containers, pod.spec.init_containers)
        return any(managed & (c.resources.requests.keys() | c.resources.limits.keys()) for c in containers)

    # -- filter and prioritize -------------------------------------------------------------------------------------

    async def filter(self, pod: PodInfo, names: Sequence[str]) -> Opinion:
        """Ask one extender after another about what the others left over. Raises ExtenderError."""
        opinion = Opinion(list(names))
        for extender in self._interested(pod):
            if not opinion.passed:
                break
            if not extender.settings.filter_verb:
                continue
            try:
                answer = await extender.filter(pod, opinion.passed)
            except ExtenderError as error:
                self._complain(error)
                if not extender.settings.ignorable:
                    raise
            else:
                spoken_of = chain(answer.failed, answer.unresolvable)
                self._works(extender, "filter", about=spoken_of, asked=opinion.passed)
                opinion.take(answer)
        return opinion

    async def prioritize(self, pod: PodInfo, names: Sequence[str]) -> Mapping[str, int]:
        """What the extenders add to the scores of nodes. All are asked at once; those that fail add nothing."""
        asked = [extender for extender in self._interested(pod) if extender.settings.prioritize_verb]
        answers = await asyncio.gather(*(self._scores(extender, pod, names) for extender in asked))
        totals: dict[str, int] = {}
        for extender, scores in zip(asked, answers, strict=True):
            factor = extender.settings.weight * (MAX_SCORE // MAX_EXTENDER_SCORE)
            for name, score in scores:
                totals[name] = totals.get(name, 0) + score * factor
        if totals and max(max(totals.values()), -min(totals.values())) > _MOST:
            return {name: min(max(total, -_MOST), _MOST) for name, total in totals.items()}
        return totals

    async def _scores(self, extender: Extender, pod: PodInfo, names: Sequence[str]) -> Sequence[tuple[str, int]]:
        self.prioritizing += 1
        try:
            scores = await extender.prioritize(pod, names)
        except ExtenderError as error:
            self._complain(error)
            return ()
        finally:
            self.prioritizing -= 1
        self._works(extender, "prioritize", about=map(itemgetter(0), scores), asked=names)
        return scores

    # -- preempt ---------------------------------------------------------------------------------------------------

    def take_part_in_preemption(self, pod: PodInfo) -> bool:
        """Whether any extender has a say in who is evicted for a pod."""
        return any(extender.settings.preempt_verb for extender in self._interested(pod))

    async def preempt(self, pod: PodInfo, offers: Mapping[str, Victims]) -> Mapping[str, Victims]:
        """Ask one extender after another about the candidates that the others left over. Raises ExtenderError."""
        for extender in self._interested(pod):
            if not extender.settings.preempt_verb:
                continue
            try:
                answer = await extender.preempt(pod, offers)
                narrowed = self._victims(extender, offers, answer)
            except ExtenderError as error:
                self._complain(error)
                if not extender.settings.ignorable:
                    raise
            else:
                self._works(extender, "preempt")
                offers = narrowed
                if not offers:
                    break
        return offers

    def _victims(
        self, extender: Extender, offers: Mapping[str, Victims], answer: Mapping[str, Spared]
    ) -> Mapping[str, Victims]:
        """The pods behind the uids of an answer. A node without victims is an error, or dropped if ignorable."""
        narrowed: dict[str, Victims] = {}
        for name, spared in answer.items():
            pods = self._pods_on(extender, name, offers.get(name))
            unknown = next((uid for uid in spared.uids if uid not in pods), None)
            if unknown is not None:
                claim = f"claims to preempt pod (UID: {unknown}) on node: {name}"
                problem = f"extender: {_name(extender)} {claim}, but the pod is not found on that node"
                raise ExtenderError(_name(extender), "preempt", problem)
            if spared.uids:
                narrowed[name] = Victims(tuple(pods[uid] for uid in dict.fromkeys(spared.uids)), spared.violations)
            elif not extender.settings.ignorable:
                problem = f'expected at least one victim pod on node "{name}"'
                raise ExtenderError(_name(extender), "preempt", problem)
        return {name: victims for name, victims in narrowed.items() if name in self._cluster.nodes.rows}

    def _pods_on(self, extender: Extender, name: str, offered: Victims | None) -> Mapping[str, PodInfo]:
        """Who can be evicted from a node: who was offered, though gone since perhaps, and who is there."""
        row = self._cluster.nodes.rows.get(name)
        if row is None and offered is None:
            raise ExtenderError(_name(extender), "preempt", f'nodeinfo not found for node name "{name}"')
        there = {} if row is None else self._cluster.nodes.pods[row]
        return {pod.uid: pod for pod in (() if offered is None else offered.pods)} | there

    # -- bind ------------------------------------------------------------------------------------------------------

    async def bind(self, pod: PodInfo, node_name: str) -> Status | None:
        """Let the extender that binds do so; None when there is none, a skip when it failed and may be ignored.

        After a failure the pod may be bound all the same.
        """
        extender = next((one for one in self._interested(pod) if one.settings.bind_verb), None)
        if extender is None:
            return None
        try:
            await extender.bind(pod, node_name)
        except ExtenderError as error:
            self._complain(error)
            return Status.skip() if extender.settings.ignorable else Status.error(error.problem)
        self._works(extender, "bind")
        return SUCCESS

    # -- complaints ------------------------------------------------------------------------------------------------

    def _complain(self, error: ExtenderError) -> None:
        """Tell of a failure once, until the extender works again or fails in another way."""
        if isinstance(error, PodGone):
            return
        known = self._complaints.get((error.extender, error.verb))
        self._complaints[error.extender, error.verb] = error.problem
        _log.log(logging.DEBUG if known == error.problem else logging.WARNING, "%s", error)

    def _works(self, extender: Extender, verb: str, *, about: Iterable[str] = (), asked: Collection[str] = ()) -> None:
        """An answer can be used; should it speak of nodes that were not asked about, that is told of and harmless."""
        if strangers := set(about).difference(asked):
            stranger = min(strangers)
            self._complain(ExtenderError(_name(extender), verb, f'speaks of node "{stranger}", which was not sent'))
        elif self._complaints and self._complaints.pop((_name(extender), verb), None) is not None:
            _log.info("extender %s works at %s again", _name(extender), verb)


def _name(extender: Extender) -> str:
    return extender.settings.url_prefix
