"""The placements of the members of a gang: which members are decided about, and what is undone."""

from __future__ import annotations

from collections.abc import Sequence

from kubestow.api.core import Node, Pod
from kubestow.cluster.pods.pod_groups import Members
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.gang import Gang
from kubestow.scheduling.decision.node_selection import Scope
from kubestow.scheduling.decision.pipeline import run_synchronously
from kubestow.scheduling.decision.result import Decision
from kubestow.scheduling.events.pod_store import PodStore
from kubestow.scheduling.gangs.attempt import GangAttempt
from kubestow.scheduling.gangs.placer import MemberPlacement
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow.testing import PluginHarness, node, pod, pods


class Placing:
    """A gang that is placed on some nodes; ``decided`` lists the members that were decided about."""

    def __init__(self, nodes: Sequence[Node], gang: Sequence[Pod]) -> None:
        harness = PluginHarness(nodes)
        self.cluster, self.store, self.decided = harness.cluster, PodStore(), list[str]()
        self.members = [QueuedPod(harness.info(each), 0.0) for each in gang]
        infos = {queued.info.uid: queued.info for queued in self.members}
        for info in infos.values():
            self.store.put(info)
        (profile,) = harness.profiles.values()
        of_gang = Members({}.keys(), infos, dict.fromkeys(infos))
        attempt = GangAttempt(Gang("train", "uid-train", len(gang), 300.0, of_gang), profile, self.members, 0.0)

        async def decide(info: PodInfo, scope: Scope) -> Decision:
            self.decided.append(info.name)
            return harness.pipeline.decide_by_plugins(info, scope)

        self.placement = MemberPlacement(harness.cluster, self.store, attempt, decide, kind_of=lambda info: info.shape)

    def place(self, *positions: int, on: str | None = None, needed: int = 0) -> None:
        """Place the members at these positions on the node ``on``, or anywhere."""
        scope = Scope(None if on is None else [on], preempts=False)
        chosen = [self.members[position] for position in positions]
        run_synchronously(self.placement.place(chosen, scope, needed=needed))

    @property
    def placed(self) -> dict[str, str]:
        return {context.info.name: context.node_name for context in self.placement.placed}

    @property
    def failed(self) -> list[str]:
        return [failure.queued.info.name for failure in self.placement.failures]

    @property
    def requested(self) -> list[int]:
        """The milli-CPUs in use on each node."""
        return [int(amount) for amount in self.cluster.all_nodes().requested("cpu")]


def test_a_placement_that_is_undone_restores_the_nominations() -> None:
    placing = Placing([node("n", cpu="4")], pods(2, cpu="1"))
    nominated, other = (queued.info for queued in placing.members)
    placing.cluster.nominate(nominated, "elsewhere")
    placing.place(0, 1)
    assert placing.placement.former_nominations == {nominated.uid: "elsewhere", other.uid: None}
    assert placing.cluster.nomination(nominated.uid) is None
    assert placing.requested == [2000]
    placing.placement.undo()
    assert placing.cluster.nomination(nominated.uid) == "elsewhere"
    assert placing.cluster.nomination(other.uid) is None
    assert placing.requested == [0]


def test_a_pod_that_was_deleted_meanwhile_is_not_nominated_again() -> None:
    placing = Placing([node("n", cpu="4")], pods(1, cpu="1"))
    info = placing.members[0].info
    placing.cluster.nominate(info, "elsewhere")
    placing.place(0)
    placing.store.remove(info.namespace, info.name)
    placing.placement.undo()
    assert not placing.cluster.has_nominations


def test_a_member_that_is_gone_before_its_turn_is_not_decided_about() -> None:
    placing = Placing([node("n", cpu="4")], pods(3, cpu="1"))
    gone = placing.members[1]
    placing.store.remove(gone.info.namespace, gone.info.name)
    placing.place(0, 1, 2)
    assert placing.decided == ["pod-0", "pod-2"]
    assert placing.placement.withdrawn == [gone]
    assert list(placing.placed) == ["pod-0", "pod-2"]


def test_a_copy_of_a_member_without_a_node_has_none_either_until_another_one_gets_a_node() -> None:
    small, large = pod("small", cpu="1"), pods(3, prefix="large", cpu="2")
    placing = Placing([node("n", cpu="1")], [large[0], large[1], small, large[2]])
    placing.place(0, 1, 2, 3)
    assert placing.decided == ["large-0", "small", "large-2"]
    assert (placing.failed, placing.placed) == (["large-0", "large-1", "large-2"], {"small": "n"})


def test_what_fails_on_some_nodes_is_tried_on_others() -> None:
    placing = Placing([node("large", cpu="2"), node("small", cpu="1")], pods(2, cpu="2"))
    placing.place(0, on="small")
    placing.place(1, on="large")
    assert (placing.failed, placing.placed) == (["pod-0"], {"pod-1": "large"})


def test_no_member_is_tried_once_too_few_can_be_placed() -> None:
    gang = [pod("large", cpu="2"), pod("larger", cpu="3"), pod("small", cpu="1")]
    for needed, decided in ((0, 3), (1, 3), (2, 2), (3, 1)):
        placing = Placing([node("n", cpu="1")], gang)
        placing.place(0, 1, 2, needed=needed)
        assert len(placing.decided) == decided


def test_placements_are_undone_to_a_mark_with_or_without_the_failures_since() -> None:
    for keeps_failures in (True, False):
        placing = Placing([node("n", cpu="2")], [*pods(2, cpu="1"), pod("large", cpu="8"), pod("larger", cpu="9")])
        placing.place(2, 0)
        mark = placing.placement.mark()
        placing.place(1, 3)
        placing.placement.undo_to(mark, keeps_failures=keeps_failures)
        assert (placing.placed, placing.requested) == ({"pod-0": "n"}, [1000])
        assert placing.failed == (["large", "larger"] if keeps_failures else ["large"])
        placing.placement.undo()
        assert placing.requested == [0]
