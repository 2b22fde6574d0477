"""Views that gather the amounts of some rows once have the amounts of the view of all rows."""

from __future__ import annotations

import pytest

from kubestow.cluster.cache import Cluster
from kubestow.testing import node, pod

_RESOURCES = ("cpu", "memory", "example.com/gpu", "unknown")


def cluster(*, equal_nodes: bool) -> Cluster:
    made = Cluster()
    for number in range(6):
        cpu = "4" if equal_nodes else str(1 + number)
        gpus = {"example.com/gpu": "2"}
        made.add_node(node(f"n{number}", cpu=cpu, memory="8Gi", max_pods=10 + number, allocatable=gpus))
    for number in range(9):
        placed = pod(f"p{number}", cpu=f"{number}00m", requests={"example.com/gpu": "1"})
        made.assume(made.shapes.info(placed), f"n{number % 4}")
    return made


@pytest.mark.parametrize("equal_nodes", [False, True])
@pytest.mark.parametrize("rows", [[3], [0, 5], [4, 1, 2]])
def test_amounts_are_those_of_the_rows(equal_nodes: bool, rows: list[int]) -> None:
    made = cluster(equal_nodes=equal_nodes)
    every, some, few = made.all_nodes(), made.some_nodes(rows), made.few_nodes(rows)
    for _ in range(2):
        for name in _RESOURCES:
            expected = every.allocatable(name)[rows].tolist(), every.requested(name)[rows].tolist()
            assert (some.allocatable(name).tolist(), some.requested(name).tolist()) == expected
            assert (list(few.allocatable(name)), list(few.requested(name))) == expected
        for name in ("nonzero_cpu", "nonzero_memory", "allowed_pods", "pod_count"):
            expected_of_rows = getattr(every, name)[rows].tolist()
            assert getattr(some, name).tolist() == expected_of_rows
            assert list(getattr(few, name)) == expected_of_rows
    assert few.as_nodes().names == some.names == [each.as_nodes().names[0] for each in few]
    assert [few.name(row) for row in rows] == some.names


@pytest.mark.parametrize("equal_nodes", [False, True])
def test_the_amounts_of_a_view_cannot_be_written_to_and_are_the_same_when_asked_for_again(equal_nodes: bool) -> None:
    made, rows = cluster(equal_nodes=equal_nodes), [4, 1]
    some, few = made.some_nodes(rows), made.few_nodes(rows)
    for name in _RESOURCES:
        for amounts in (some.allocatable(name), some.requested(name)):
            assert not amounts.flags.writeable
        assert some.allocatable(name) is some.allocatable(name)
        assert few.requested(name) is few.requested(name)
    assert (some.allocatable("cpu").strides == (0,)) == equal_nodes


def test_a_view_of_the_same_rows_is_shared_until_something_changes() -> None:
    made, rows = cluster(equal_nodes=False), [1, 2]
    some, few = made.some_nodes(rows), made.few_nodes(rows)
    assert made.some_nodes(rows) is some
    assert made.few_nodes(rows) is few
    assert made.some_nodes([1, 2]) is not some
    before = some.requested("cpu")[0], few.requested("cpu")[0]
    made.assume(made.shapes.info(pod("later", cpu="1")), "n1")
    after = made.some_nodes(rows).requested("cpu")[0], made.few_nodes(rows).requested("cpu")[0]
    assert after == (before[0] + 1000, before[1] + 1000)
