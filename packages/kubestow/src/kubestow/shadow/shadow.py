"""The shadow of a scheduler: it watches what that scheduler decides, and decides about each pod again.

A pod that gets its node, a new message in the PodScheduled condition, and a nomination together with the pods that are
evicted for it are decisions. The cache follows the watch at a distance, so that when a change that shows a decision is
the next to be applied, the cache is in the state that the watch had delivered before it, and all that the scheduler may
have known before has been delivered too. The decision is compared with the one from that state. If they differ, or if
evictions belong to it, it is decided from each state in which that scheduler may have been (:mod:`.moments`), and only
if one of them yields the same result, the difference is *explained by a race*.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

from kubestow import config
from kubestow.api.meta import ObjectMeta
from kubestow.api.resource import ResourceClaim
from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim
from kubestow.cluster.pods.pod_groups import PodGroupAPI
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.explanation.node_tables import NodeComparison
from kubestow.errors import InputError, KubestowError
from kubestow.framework.profile import Registry
from kubestow.rules.pods import condition_of
from kubestow.scheduling.events.resources import PODS, WATCHED, watched
from kubestow.scheduling.events.watch_cache import WatchCache
from kubestow.scheduling.extenders.stages import takes_part
from kubestow.scheduling.interfaces import Resource
from kubestow.shadow.comparison import Comparison, DecisionComparer, ObservedDecision, Verdict
from kubestow.shadow.history import Change, Moment, ObjectID, StateHistory
from kubestow.shadow.moments import MOST_MOMENTS, Moments
from kubestow.shadow.preemptions import PREEMPTED_EVENTS, Preemptions

SETTLING_SECONDS = 2.0
"""So far the cache is behind the watch: what the scheduler may have known before a decision has been delivered then."""
EVICTION_SECONDS = 10.0
"""So long after a nomination, its victims have been evicted; the last one is when the others are."""
MOST_AHEAD = 8192
"""With more changes than these to look at, decisions that differ are not looked at again."""
RACE_SECONDS = 5.0
"""A decision is based on a state that is not older than this."""

#: Decisions are looked at for so long at a time, in seconds, before watch events are handled again.
_BUSY_SECONDS = 0.1
_BEHIND = "too much has happened before it could be looked at again"
#: For each so many changes that could have been applied already, half as many states are tried for a decision.
_HALVING = 2048
#: So many evictions, nominations and events of preemption are remembered.
_MOST_PREEMPTIONS = 2000
#: Steps towards a moment at which no node is better than the chosen one.
_STEPS = 6
#: Of a nomination, so many moments are tried at the first look, when not all victims may have been evicted.
_EARLY = 16
#: Moments that are tried before it is supposed that deleted pods were assumed on nodes.
_LIKELY = 48
#: In the message of an attempt in which preemption found nothing; without it a nominated pod has preempted again.
_PREEMPTION = "preemption: "
#: In the message of a preemption since Behaviour.PREEMPTION_REPORTS_WHAT_IT_FOUND, also where the nomination stays.
_PREEMPTS_AGAIN = "preemption: found a potential placement"
#: How a rejection begins.
_NODE_COUNT = re.compile(r"0/(\d+) nodes are available")
_VOLUMES = (PersistentVolume, PersistentVolumeClaim, ResourceClaim)


@dataclass(frozen=True, slots=True)
class ComparedDecision:
    """A decision of the scheduler beside the one made here; ``pod`` is namespace/name, ``time`` is in seconds.

    ``race`` says what the scheduler must have known, or not have known yet, for the two to agree; it is empty if they
    agree anyway, or never. ``reason`` says why they were not compared. ``nodes`` are the scheduler's node and the one
    chosen here, side by side, if they differ. ``moments`` is how many states were tried.
    """

    pod: str
    time: float
    observed: ObservedDecision
    verdict: Verdict
    here: str
    race: tuple[str, ...] = ()
    reason: str = ""
    nodes: NodeComparison | None = None
    moments: int = 1

    @property
    def label(self) -> str:
        """The verdict, as it is counted."""
        return RACE if self.race else self.verdict.value

    @property
    def differs(self) -> bool:
        """Whether the scheduler here would never have decided so."""
        return not self.verdict.agrees and self.verdict is not Verdict.NOT_COMPARED


RACE = "explained by a race"


class ShadowCounts:
    """How many decisions there were of each verdict, in all."""

    def __init__(self) -> None:
        self.by_label: Counter[str] = Counter()
        self.compared = self.differing = 0

    def add(self, found: ComparedDecision) -> None:
        """Count a decision."""
        self.by_label[found.label] += 1
        self.compared += found.verdict is not Verdict.NOT_COMPARED
        self.differing += found.differs

    @property
    def agreement(self) -> float:
        """Of 100 compared decisions so many agree, those explained by a race included; 100 without any."""
        return 100.0 * (self.compared - self.differing) / self.compared if self.compared else 100.0


@dataclass(slots=True)
class _Open:
    """A decision that is being looked at: with the result of the first look, if there was one, and the search."""

    change: Change
    observed: ObservedDecision
    first: Comparison | None
    search: _Search | None = None


class Shadow:
    """Implements :class:`~kubestow.scheduling.interfaces.Subscriber`; it has to be subscribed to its ``resources``.

    ``scheduler_names`` are those whose decisions are compared, by default all of the configuration; ``monotonic`` is
    the time of events, in seconds; ``on_result`` is called with each compared decision. Raises ConfigurationError,
    PluginError, and InputError for a name without a profile.
    """

    def __init__(
        self,
        configuration: config.KubeSchedulerConfiguration,
        registry: Registry,
        gates: config.FeatureGates,
        *,
        monotonic: Callable[[], float],
        on_result: Callable[[ComparedDecision], None],
        scheduler_names: Collection[str] = (),
        pod_group_apis: Iterable[PodGroupAPI] = (),
    ) -> None:
        self._monotonic, self._on_result = monotonic, on_result
        self.cache = WatchCache(pod_group_apis, gates=gates)
        self._comparer = DecisionComparer(self.cache.cluster, configuration, registry, gates)
        profiles = self._comparer.profiles
        for name in scheduler_names:
            if name not in profiles:
                raise InputError("--scheduler-name", f"no profile {name}, the configuration has {', '.join(profiles)}")
        self._names = frozenset(scheduler_names or profiles)
        self._extenders = configuration.extenders
        self._history = StateHistory(self.cache, self._names)
        plugins = [plugin for profile in profiles.values() for plugin in profile.plugins]
        kinds = {kind for plugin in plugins for kind in plugin.watched_kinds()}
        additional = [resource for resource in watched(kinds, gates) if resource not in WATCHED]
        self.cache.expect(additional)
        self.resources = (*self.cache.watched[:-1], *additional, PREEMPTED_EVENTS, *self.cache.watched[-1:])
        #: The decision that the first change ahead shows, once it has been looked at and differs.
        self._current: _Open | None = None
        #: Nominations that differ, at least as long as not all victims have been evicted.
        self._evicting: deque[_Open] = deque()
        self._preemptions = Preemptions(_MOST_PREEMPTIONS)

    # -- the subscriber's interface ------------------------------------------------------------------------------------

    def replace(self, resource: Resource, objects: Sequence[Any]) -> None:
        if resource == PREEMPTED_EVENTS:
            for event in objects:
                self._preemptions.add_event(event)
            return
        for change in self._history.receive_list(resource, objects, self._monotonic()):
            self._receive(change)

    def apply(self, resource: Resource, event_type: str, obj: Any) -> None:
        if resource == PREEMPTED_EVENTS:
            self._preemptions.add_event(obj)
        elif (change := self._history.receive(resource, event_type, obj, self._monotonic())) is not None:
            self._receive(change)

    def unreadable(self, resource: Resource, metadata: ObjectMeta, problem: str) -> None:
        if resource != PREEMPTED_EVENTS:
            self._history.go_back()
            self.cache.unreadable(resource, metadata, problem)

    def _receive(self, change: Change) -> None:
        """Note what a change tells about preemption, and settle the oldest one if there are too many."""
        self._preemptions.add_eviction(change)
        if (observed := self._decision(change)) is not None and observed.nominated:
            self._preemptions.add_nomination(change)
        while len(self._history.ahead) > MOST_AHEAD:
            self._settle(self._history.ahead[0], None)

    # -- decisions -----------------------------------------------------------------------------------------------------

    def _decision(self, change: Change) -> ObservedDecision | None:
        """What the scheduler has decided with a change, if it has."""
        old, new = change.old, change.new
        if change.resource != PODS or old is None or new is None:
            return None
        if old.spec.node_name or old.spec.scheduler_name not in self._names:
            return None
        if new.spec.node_name:
            return ObservedDecision(node=new.spec.node_name)
        condition, before = condition_of(new.status, "PodScheduled"), condition_of(old.status, "PodScheduled")
        if condition is None or condition.status != "False" or condition.reason == "SchedulingGated":
            return None
        nominated = new.status.nominated_node_name
        is_new = before is None or (before.reason, before.message) != (condition.reason, condition.message)
        preempts = _PREEMPTS_AGAIN in condition.message or _PREEMPTION not in condition.message
        if nominated and (nominated != old.status.nominated_node_name or (is_new and preempts)):
            return ObservedDecision(message=condition.message, nominated=nominated)
        if not is_new:
            return None
        return ObservedDecision(message=condition.message)

    def _incomparable(self, pod: PodInfo, observed: ObservedDecision) -> str:
        """Why a decision about a pod cannot be made here by itself; empty if it can."""
        if any(takes_part(extender, pod) for extender in self._extenders):
            return "an extender takes part in decisions about this pod"
        profile = self._comparer.profiles[pod.spec.scheduler_name]
        gang = profile.gangs.gang_of(pod)
        if gang is None:
            return ""
        if not observed.node:
            return "the pods of a group are rejected, and preempt, together"
        if profile.gangs.generate_placements(gang, [pod], self.cache.cluster) is not None:
            return "its group is placed in one topology domain, which is chosen for all of its pods"
        return ""

    def judge(self, *, everything: bool = False) -> bool:
        """Look at the decisions that are old enough, or at all that are left, and follow the watch.

        Ends early while watch events may be waiting; returns whether there is more to do.
        """
        began = self._monotonic()

        def is_over() -> bool:
            return not everything and self._monotonic() - began > _BUSY_SECONDS

        while self._current is None and self._evicting and self._evicting[0].change.time <= began - EVICTION_SECONDS:
            if not self._look_again(self._evicting[0], is_over):
                return True
            self._evicting.popleft()
        ahead = self._history.ahead
        while ahead and (everything or ahead[0].time <= began - SETTLING_SECONDS):
            if not self._settle(ahead[0], is_over) or is_over():
                return True
        while everything and self._evicting:
            opened = self._evicting.popleft()
            self._leave_out(opened.change, opened.observed, "the watch has ended before all victims were evicted")
        return False

    def _settle(self, change: Change, is_over: Callable[[], bool] | None) -> bool:
        """Compare the decision that the first change ahead shows, if it shows one, and apply the change.

        Returns whether this could be done before it is over; without ``is_over`` there is no time for a search.
        """
        if self._current is None and (observed := self._decision(change)) is not None:
            try:
                self._current = self._look(change, observed)
            except KubestowError as error:  # an object that cannot be read as a whole
                self._leave_out(change, observed, str(error))
        if self._current is not None:
            if is_over is None:
                self._give_up(self._current)
            elif not self._look_again(self._current, is_over):
                return False
            self._current = None
        self._history.advance()
        return True

    def _look(self, change: Change, observed: ObservedDecision) -> _Open | None:
        """Compare with the decision from the state that was delivered before the change; None if that is all.

        Raises KubestowError for a pod that cannot be read.
        """
        pod = self.cache.known(change.old.metadata.uid)
        if pod is None or pod.pod is not change.old:
            pod = self.cache.cluster.shapes.info(change.old)
        if reason := self._incomparable(pod, observed):
            self._leave_out(change, observed, reason)
            return None
        if observed.nominated or self._preparations(change):
            return _Open(change, observed, None)
        found = self._comparer.compare(pod, observed)
        if not found.verdict.agrees:
            return _Open(change, observed, found)
        self._report(change, observed, found)
        return None

    def _look_again(self, opened: _Open, is_over: Callable[[], bool]) -> bool:
        """Search for a state from which a decision agrees; whether that could be done before it is over."""
        try:
            self._judge(opened, is_over)
        except KubestowError as error:  # an object that cannot be read as a whole
            self._leave_out(opened.change, opened.observed, str(error))
            opened.search = None
        if opened.search is None:
            self._history.go_back()
        return opened.search is None

    def _judge(self, opened: _Open, is_over: Callable[[], bool]) -> None:
        """Compare with the decisions from all states in which the scheduler may have been, until it is over.

        For a nomination these are at first only the most likely ones, because it is looked at again.
        """
        change = opened.change
        if not self._history.reaches(change.number):
            self._give_up(opened)
            opened.search = None
            return
        is_last = not opened.observed.nominated or opened is not self._current
        changes = self._history.since(change.time - RACE_SECONDS)
        if change not in changes:  # one that other decisions do not depend on, such as a condition
            changes = sorted((*changes, change), key=lambda other: other.number)
        search = opened.search or self._begin(opened, changes, is_last=is_last)
        found = search.go_on(changes, is_over)
        opened.search = None if search.has_ended else search
        if opened.search is not None:
            return
        observed = search.observed
        if found is not None:
            self._report(change, observed, found, race=search.race, moments=search.tried)
        elif not is_last:
            self._evicting.append(_Open(change, opened.observed, None))
        elif observed.nominated and not observed.victims:
            self._leave_out(change, observed, "its victims were evicted before the watch has shown them on the node")
        else:
            first = search.first or Comparison(Verdict.OTHER_OUTCOME, "the pod was not pending")
            self._report(change, observed, first, nodes=search.nodes, moments=search.tried)

    def _begin(self, opened: _Open, changes: Sequence[Change], *, is_last: bool) -> _Search:
        """The search for a decision; only of the most likely states if it is not the last one."""
        change, observed, effects = opened.change, opened.observed, [frozenset[int]()]
        if observed.nominated:
            observed = self._preemptions.with_victims(change, observed, changes, change.time - RACE_SECONDS)
            effects = list(self._preemptions.effects(observed, changes))
        prepared = self._preparations(change)
        sets = dict.fromkeys(each | part for each in effects for part in (prepared, frozenset[int]()))
        most = self._most_moments if is_last else None
        if is_last and observed.nominated and not observed.victims:  # it is left out unless it is found
            most = partial(min, _LIKELY, self._most_moments())
        return _Search(self._comparer, self._history, change, observed, changes, list(sets), most)

    def _most_moments(self) -> int:
        """How many moments are tried for a decision: fewer, the more changes ahead could have been applied by now."""
        overdue = bisect_right(self._history.ahead, self._monotonic() - SETTLING_SECONDS, key=attrgetter("time"))
        return MOST_MOMENTS >> overdue // _HALVING

    def _preparations(self, change: Change) -> frozenset[int]:
        """The numbers of the changes of the pod's volumes and claims while it was pending: PreBind makes them."""
        if not change.old.spec.volumes and not change.old.spec.resource_claims:
            return frozenset()
        info = self.cache.cluster.shapes.info(change.old)
        claims = info.shape.family.claims
        names = {*claims.names, *(f"{info.name}-{name}" for name in claims.ephemeral)}
        names |= {status.resource_claim_name or "" for status in info.status.resource_claim_statuses}
        found = set()
        for each in self._history.since(change.time - RACE_SECONDS):
            if (
                each.number > change.number
                or each.old is None
                or each.new is None
                or each.resource.type not in _VOLUMES
            ):
                continue
            obj = each.new
            if isinstance(obj, PersistentVolume):
                reference = obj.spec.claim_ref
                is_mine = reference is not None and (reference.namespace, reference.name) in {
                    (info.namespace, name) for name in names
                }
            else:
                is_mine = obj.metadata.namespace == info.namespace and obj.metadata.name in names
            if is_mine:
                found.add(each.number)
        return frozenset(found)

    def _give_up(self, opened: _Open) -> None:
        """Report a decision that was not looked at again in time: it differs if it did at the first look."""
        found = opened.first or Comparison(Verdict.NOT_COMPARED, "")
        self._report(opened.change, opened.observed, found, reason=_BEHIND)

    def _leave_out(self, change: Change, observed: ObservedDecision, reason: str) -> None:
        self._report(change, observed, Comparison(Verdict.NOT_COMPARED, ""), reason=reason)

    def _report(
        self,
        change: Change,
        observed: ObservedDecision,
        found: Comparison,
        *,
        race: tuple[str, ...] = (),
        reason: str = "",
        nodes: NodeComparison | None = None,
        moments: int = 1,
    ) -> None:
        pod = f"{change.key[0]}/{change.key[1]}"
        compared = ComparedDecision(pod, change.time, observed, found.verdict, found.here, race, reason, nodes, moments)
        self._on_result(compared)


class _Search:
    """The search for a state from which the scheduler here decides as it was observed.

    ``first`` is the result from the state that was delivered, ``nodes`` the two nodes in it; ``tried`` counts states,
    ``race`` says in what the state differs that was found. Each of the ``effects`` is a set of changes (numbers) that
    may follow from the decision; at most so many states (``most``, asked before each one) are tried with each, without
    it only the most likely ones, and few others if not only the victims differ. A search can be interrupted.
    """

    def __init__(
        self,
        comparer: DecisionComparer,
        history: StateHistory,
        change: Change,
        observed: ObservedDecision,
        changes: Sequence[Change],
        effects: Sequence[frozenset[int]],
        most: Callable[[], int] | None,
    ) -> None:
        self._comparer, self._history, self._change, self.observed = comparer, history, change, observed
        self._moments = self._all(changes, effects, most)
        self._seen: set[Moment] = set()
        #: How many more nodes than in the plain state there were by the words of a rejection; None if it is not known.
        self._more_nodes: int | None = None
        #: Those until now.
        self._changes = changes
        self.first: Comparison | None = None
        #: The nodes that were chosen here, or nominated.
        self.nodes_here: set[str] = set()
        self.nodes: NodeComparison | None = None
        self.race: tuple[str, ...] = ()
        self.tried = 0
        self.has_ended = False

    def go_on(self, changes: Sequence[Change], is_over: Callable[[], bool]) -> Comparison | None:
        """The result that agrees; None if none does, or if it is over before the search :attr:`has_ended`.

        ``changes`` are those until now; what has changed since the beginning of the search has not happened in it.
        The cache stays in the state that was tried last.
        """
        self._changes = changes
        for moments, moment in self._moments:
            if moment in self._seen or self._has_other_nodes(moments, moment):
                continue
            self._seen.add(moment)
            self._go_to(moment)
            found = self._compare(self.observed)
            if found is not None and found is self.first:
                self._more_nodes = self._more_nodes_said(found, moments.more_nodes(moment))
            if found is not None and found.verdict.agrees:
                self.race, self.has_ended = tuple(moments.differences(moment)), True
                return found
            if is_over():
                return None
        self.has_ended = True
        return None

    def _more_nodes_said(self, first: Comparison, more_nodes: int) -> int | None:
        """How many more nodes there were by the words, given that there were so many more at the first state."""
        said, here = _NODE_COUNT.match(self.observed.message), _NODE_COUNT.match(first.here)
        if self.observed.nominated or said is None or here is None:
            return None
        return int(said[1]) - int(here[1]) + more_nodes

    def _has_other_nodes(self, moments: Moments, moment: Moment) -> bool:
        """Whether a rejection would have other words at a moment, because there are more nodes or fewer."""
        return self._more_nodes is not None and self._more_nodes != moments.more_nodes(moment)

    def _go_to(self, moment: Moment) -> None:
        self._history.go_to(moment, self._changes)

    def _all(
        self, changes: Sequence[Change], effects: Sequence[frozenset[int]], most: Callable[[], int] | None
    ) -> Iterator[tuple[Moments, Moment]]:
        """The moments to try: the most likely ones of each set of effects before many of one of them.

        That a pod was assumed which no watch has shown on a node is less likely than what the watches have shown, and
        is tried after a few of the other moments.
        """
        begun = []
        for caused in effects:
            moments = Moments(self._change, changes, self._history.created, caused, RACE_SECONDS)
            ends: list[Moment] = []
            nodes = {name for name in (self.observed.node, self.observed.nominated) if name}
            yield from ((moments, moment) for moment in self._leading(moments, nodes, ends))
            begun.append((moments, ends, moments.all(nodes)))
        if most is None:
            most = self._most_at_first
        for moments, ends, others in begun:
            yield from ((moments, moment) for moment in itertools.islice(_at_most(most, others), _LIKELY))
            for moment in dict.fromkeys(ends):
                if assumed := self._assumed(moments, moment):
                    yield moments, replace(moment, assumed=assumed)
        for moments, _, others in begun:
            yield from ((moments, moment) for moment in _at_most(most, others, _LIKELY))

    def _most_at_first(self) -> int:
        """How many are tried while not all victims may have been evicted: none if that may be why it differs."""
        first = self.first
        if first is None or (first.verdict is Verdict.OTHER_VICTIMS and first.node == self.observed.nominated):
            return 0
        return _EARLY

    def _compare(self, observed: ObservedDecision) -> Comparison | None:
        """Compare in the state that the cache is in; None if the pod is not pending in it."""
        pod = self._pod()
        if pod is None:
            return None
        self.tried += 1
        found = self._comparer.compare(pod, observed, thoroughly=self.first is None)
        if found.node:
            self.nodes_here.add(found.node)
        if self.first is None:
            self.first = found
            if observed.node and not found.verdict.agrees:
                self.nodes = self._comparer.side_by_side(pod, observed.node)
        return found

    def _pod(self) -> PodInfo | None:
        pod = self._history.cache.known(self._change.old.metadata.uid)
        return None if pod is None or pod.is_assigned else pod

    def _leading(self, moments: Moments, nodes: set[str], ends: list[Moment]) -> Iterator[Moment]:
        """The plain moment and that of the queue's order, and those to which they lead.

        Added to ``nodes`` are those that are chosen here or better than the one that was chosen, and to ``ends`` the
        last moments, if there are better nodes at them.
        """
        node = self.observed.node
        for moment in (moments.plain, moments.in_queue_order()):
            yield moment
            nodes |= self.nodes_here
            for _ in range(_STEPS if node and moments.free else 0):
                self._go_to(moment)
                if (pod := self._pod()) is None:
                    break
                better = self._comparer.better_nodes(pod, node)
                nodes |= better
                following = moments.without(moment, better, node)
                if following == moment:
                    ends.append(moment)
                    break
                moment = following
                yield moment

    def _assumed(self, moments: Moments, moment: Moment) -> tuple[tuple[ObjectID, str], ...]:
        """Deleted pods and the better nodes on which they may have been assumed; empty if some such node is left."""
        self._go_to(moment)
        if (pod := self._pod()) is None:
            return ()
        gone, found = list(moments.gone), []
        for better in sorted(self._comparer.better_nodes(pod, self.observed.node)):
            fitting = next((each for each in gone if self._comparer.fits(each.old, better)), None)
            if fitting is None:
                return ()
            gone.remove(fitting)
            found.append((fitting.object_id, better))
        return tuple(found)


def _at_most(most: Callable[[], int], moments: Iterator[Moment], tried: int = 0) -> Iterator[Moment]:
    """The moments until so many have been tried, those before included."""
    while tried < most() and (moment := next(moments, None)) is not None:
        tried += 1
        yield moment
