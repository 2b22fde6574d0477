"""What a living scheduler writes, where the server is slow: a second passes before it answers."""

from __future__ import annotations

from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import Living, in_virtual_time
from tests.scheduling.harness import Answer, Server, busy, silence


def test_a_pod_that_is_bound_by_others_is_told_nothing_more() -> None:
    server = Server()

    async def story(world: Living) -> None:
        server.answers = [Answer(seconds=5)]
        server.put(pod("p", cpu="8"))
        await world.settles()
        server.put(node("m", cpu="8", taints=["dedicated=yes:NoSchedule"]))
        await world.passes(3)
        assert [event.note.split()[0] for event in server.events] == ["0/1", "0/2"]
        server.put(pod("p", cpu="8", node="elsewhere"))
        await world.passes(5)
        assert [what.split()[0] for _, what in server.asked] == ["0/1"]

    in_virtual_time(story, node("n", cpu="4"), cluster=server)


def test_a_pod_that_finds_a_node_while_it_is_told_that_there_is_none_is_bound_after_that() -> None:
    server = Server()

    async def story(world: Living) -> None:
        server.put(pod("p", cpu="8"))
        await world.settles()
        server.put(node("m", cpu="8"))
        await world.passes(5)
        assert [what.split()[0] for _, what in server.asked] == ["0/1", "bind"]
        assert server.asked[1][0] - server.asked[0][0] >= 1.0

    in_virtual_time(story, node("n", cpu="4"), cluster=server)


def test_a_pod_whose_binding_fails_learns_of_that_alone() -> None:
    server = Server()

    async def story(world: Living) -> None:
        server.answers = [Answer(failure=busy(403)), Answer(failure=silence()), Answer()]
        server.put(pod("p"))
        await world.passes(3)
        told = 'running Bind plugin "DefaultBinder": refused with 403'
        assert [what for _, what in server.asked][:3] == ["bind to n", told, told]
        assert server.complaints == []

    in_virtual_time(story, node("n"), cluster=server)
