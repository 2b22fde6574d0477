"""GangPlacementSearch: a gang is placed if any placement exists, or its pods say why none does.

The scheduler places the pods of a gang one after the other, each on the node that is best for it, and misses placements
that way. This plugin is called when that fails, and at first for gangs with preferences. It copies what a placement has
to respect, and searches the copy beside the scheduler: by packing, then by a constraint model with a time limit
(:class:`kubestow.engine.gangs.gang_search.PreferenceSearch`). Every solution is verified by the engine on the cluster
as it is by then, and the scheduler places the pods only if all plugins accept them on their nodes. What a search proves
when it finds nothing, a certificate, is the message of the pods.

Nothing waits for a search but its gang, which does not preempt meanwhile, and other searches, of which one runs at a
time. A gang behind another one goes on without an answer, and may preempt. When the cluster changes during a search so
that an attempt of the gang sees another problem, or a plugin refuses a placement that was found, the gang is searched
again, three times in a row at most, and then after ten seconds or the next event that may help it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.gangs.gang_search import PreferenceSearch, Proposal, SearchOptions, certificates_text
from kubestow.engine.gangs.verification import Verified, Verifier, assignments_of
from kubestow.engine.placement.modelled_pods import why_not_modelled
from kubestow.engine.placement.solvers import require_solvers
from kubestow.framework.gang import Gang, GangPlacementPlugin
from kubestow.framework.interface import Handle
from kubestow.framework.profile import BatchHandle, Profile
from kubestow.framework.status import SUCCESS, Code, Status

_SEARCHING = Status(Code.PENDING, ("a placement is being searched for",))
_FAILED = Status.unschedulable("the search for a placement has failed")
_REFUSED = Status.unschedulable("the placements that were found did not fit any more when their turn came")
#: How often in a row a gang is searched for, and the seconds of the pause after that.
_MOST_ROUNDS, _PAUSE = 3, 10.0
#: The gangs that are remembered; those that were searched for first are forgotten first.
_MOST_GANGS = 1_000
#: The searches that wait for others, each with a copy of the problem. Further gangs have their turn after them.
_MOST_WAITING = 16
#: The event loop looks for an order of the pods of a solution no longer than this: so many sets of placed pods.
_MOST_STATES = 200


class GangPlacementSearchArgs(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """How long one gang is searched for: seconds of the solver's deterministic time, about those of a fast core."""

    time_limit_seconds: float = 10.0

    def __post_init__(self) -> None:
        if not 0 < self.time_limit_seconds < math.inf:
            raise ValueError(f"timeLimitSeconds is {self.time_limit_seconds:g}, expected a positive number")


@dataclass(slots=True)
class _GangState:
    """What is known of a gang: the problem that was searched last (by its digest), and what came of it."""

    digest: bytes
    #: How often in a row the gang has been searched for without an answer that holds.
    round: int
    #: Whether the search waits for another one, and whether it has ended.
    has_begun: bool = False
    has_ended: bool = False
    #: Whether an attempt since then saw another problem.
    is_outdated: bool = False
    #: The nodes that were found, by the uids of the pods in the order in which they fit; handed out once.
    found: Mapping[str, str] | None = None
    #: The uids of the pods that nodes were handed out for.
    handed_out: frozenset[str] = frozenset()
    #: Why there are none, as it was last known; None before that.
    answer: Status | None = None
    #: Whether the answer has not been reported yet. The attempt that the search causes does, whatever has changed.
    is_new: bool = False


class GangPlacementSearch(GangPlacementPlugin):
    """Searches among all placements of a gang that does not fit pod after pod."""

    name = "GangPlacementSearch"
    Args = GangPlacementSearchArgs

    def __init__(self, args: GangPlacementSearchArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        require_solvers(self.name)
        limit = args.time_limit_seconds
        self._options = SearchOptions(limit=limit, total_limit=limit)
        #: None where no scheduler runs, as in an offline explanation.
        self._scheduler = handle if isinstance(handle, BatchHandle) else None
        self._gangs: dict[Hashable, _GangState] = {}
        self._one_at_a_time = handle.lock()
        #: How many searches run or wait, and the gangs that have none because these are too many.
        self._searches = 0
        self._turned_away: dict[Hashable, Gang] = {}

    def place_gang(self, gang: Gang, pods: Sequence[PodInfo]) -> Sequence[tuple[PodInfo, str]] | Status:
        """The nodes that a search has found, what it has proven, or that one is running."""
        scheduler = self._scheduler
        if scheduler is None or not gang.missing_pods:
            return SUCCESS
        profile = scheduler.profiles[pods[0].spec.scheduler_name]
        if any(why_not_modelled(profile, pod, with_gang=True) for pod in {pod.shape: pod for pod in pods}.values()):
            return SUCCESS
        state = self._gangs.get(gang.name)
        if state is not None and state.found is not None:
            return self._hand_out(state, pods)
        search = PreferenceSearch.of(scheduler.cluster, profile, gang, pods, self._options)
        if isinstance(search, Status):
            return search
        digest = search.digest()
        if state is None:
            return self._begin(gang, search, _GangState(digest, 1), profile)
        state.is_outdated |= state.digest != digest
        if not state.has_ended:
            return self._waiting(state)
        if state.answer is not None and (state.is_new or not state.is_outdated):
            state.is_new, state.round = False, 0
            return state.answer
        if not state.handed_out.issubset(pod.uid for pod in pods):
            state.round = 0  # the gang was placed, and has lost pods since
        if state.round >= _MOST_ROUNDS:
            del self._gangs[gang.name]
            self.handle.spawn(self._activate_later(gang))
            return state.answer or _REFUSED
        return self._begin(gang, search, _GangState(digest, state.round + 1, answer=state.answer), profile)

    def _hand_out(self, state: _GangState, pods: Sequence[PodInfo]) -> Sequence[tuple[PodInfo, str]]:
        """The nodes that were found for those of the pods that still wait."""
        waiting, found = {pod.uid: pod for pod in pods}, state.found or {}
        state.found, state.handed_out, state.is_outdated = None, frozenset(found), True
        return [(waiting[uid], node_name) for uid, node_name in found.items() if uid in waiting]

    def _begin(self, gang: Gang, search: PreferenceSearch, state: _GangState, profile: Profile) -> Status:
        """Search for a gang from now on, or after the other searches."""
        if self._searches > _MOST_WAITING:
            if len(self._turned_away) < _MOST_GANGS:
                self._turned_away[gang.name] = gang
            return SUCCESS
        self._turned_away.pop(gang.name, None)
        self._gangs.pop(gang.name, None)
        for name in [name for name, other in self._gangs.items() if other.has_ended][: 1 - _MOST_GANGS]:
            del self._gangs[name]
        self._gangs[gang.name] = state
        state.has_begun = not self._searches
        self._searches += 1
        self.handle.spawn(self._search(gang, search, state, profile))
        return self._waiting(state)

    def _waiting(self, state: _GangState) -> Status:
        """That the answer is not known yet. What was known before stays the message of the gang."""
        if not state.has_begun:
            return SUCCESS if state.answer is None else state.answer
        return _SEARCHING if state.answer is None else Status(Code.PENDING, state.answer.reasons)

    async def _activate_later(self, gang: Gang) -> None:
        await self.handle.wait_for(lambda: None, _PAUSE)
        self.handle.activate(list(gang.members.pods.values()))

    # -- the search --------------------------------------------------------------------------------------------------

    async def _search(self, gang: Gang, search: PreferenceSearch, state: _GangState, profile: Profile) -> None:
        """Search until the engine accepts a placement or none is left; then have the gang tried again."""
        answer = _FAILED
        try:
            async with self._one_at_a_time:
                state.has_begun = True
                answer = await self._find(gang, search, state, profile)
        finally:
            state.has_ended = True
            self._searches -= 1
            if state.found is None and (not state.is_outdated or state.round >= _MOST_ROUNDS):
                state.answer, state.is_new = answer, True
            activated = [gang]
            if self._turned_away:
                activated.append(self._turned_away.pop(next(iter(self._turned_away))))
            self.handle.activate([pod for each in activated for pod in each.members.pods.values()])

    async def _find(self, gang: Gang, search: PreferenceSearch, state: _GangState, profile: Profile) -> Status:
        """Search for nodes; the answer if none are found."""
        if state.is_outdated:  # while other searches ran
            state.round = 0
            return _FAILED
        verifier = Verifier(self.handle.cluster, profile, _MOST_STATES)
        while (proposal := await self.handle.compute(search.propose)) is not None:
            verified = self._verify(gang, search, proposal, verifier)
            if verified is None:
                state.is_outdated = True
                return _REFUSED
            if verified.assignments is not None:
                state.found = {pod.uid: node_name for pod, node_name in verified.assignments}
                return SUCCESS
            search.refuse(is_proven=verified.is_proven)
        if search.undecided:
            return Status.unschedulable(f"not known whether a placement exists: {search.undecided}")
        return Status.unschedulable(certificates_text(search.certificates))

    def _verify(self, gang: Gang, search: PreferenceSearch, proposal: Proposal, verifier: Verifier) -> Verified | None:
        """Whether the engine accepts a solution on the cluster as it is now; None if pods or nodes of it are gone."""
        rows, members = self.handle.cluster.nodes.rows, gang.members
        waiting = members.ready.keys() - members.placed
        for pod, node_name in assignments_of(search.problem, proposal.placed):
            if node_name not in rows or pod.uid not in waiting:
                return None
        return verifier.verify(search.problem, proposal.placed)
