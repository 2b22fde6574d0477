"""The pod table keeps columns of the pods on each row, in the order of kube-scheduler."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubestow.cluster.pods.shapes import PodInfo, Shape, Shapes
from kubestow.cluster.pods.table import NOT_STARTED, PodChanges, PodTable
from kubestow.testing import pod

SHAPES = Shapes()


def info(name: str, *, priority: int = 0, cpu: str = "1", start_time: str | None = None) -> PodInfo:
    """A pod."""
    return SHAPES.info(pod(name, priority=priority, cpu=cpu, status={"startTime": start_time}))


def table(*rows: list[PodInfo]) -> PodTable:
    """Pods by row."""
    made = PodTable()
    for number, infos in enumerate(rows):
        made.append_row()
        for each in infos:
            made.add(each, number)
    return made


def names(pods: PodTable, row: int) -> list[str]:
    """The names of the pods on a row, in order."""
    slots, _ = pods.slots_on([row])
    return [pods.info(slot).name for slot in slots.tolist()]


def test_pods_are_listed_row_by_row() -> None:
    pods = table([info("a"), info("b")], [], [info("c")])
    slots, offsets = pods.slots_on([2, 1, 0])
    assert [pods.info(slot).name for slot in slots.tolist()] == ["c", "a", "b"]
    assert offsets.tolist() == [0, 1, 1, 3]


def test_changes_without_some_pods_are_those_of_the_others() -> None:
    changes = PodChanges.of([[info("a"), info("b")], [], [info("c")]], -1)
    left = changes.without(np.array([True, False, False]))
    assert [[each.name for each in left.at(row)] for row in range(3)] == [["b"], [], ["c"]]
    assert left.sums_removed(_millicores).tolist() == changes.sums_of(_millicores).tolist() == [-2000, 0, -1000]
    assert left.sums_of(_millicores).tolist() == [-1000, 0, -1000]
    moved = left.select(np.array([2, 0]))
    assert [[each.name for each in moved.at(row)] for row in range(2)] == [["c"], ["b"]]
    assert moved.sums_removed(_millicores).tolist() == [-1000, -2000]
    assert changes.sums_removed(_millicores).tolist() == [-2000, 0, -1000]


def test_the_requests_of_the_pods_of_some_kind_are_summed() -> None:
    changes = PodChanges.of([[info("a", cpu="1"), info("b", cpu="2")], [], [info("c", cpu="4")]], -1)
    assert changes.sums_of_requests("cpu", lambda shape: shape.requests["cpu"] != 2000).tolist() == [-1000, 0, -4000]
    assert changes.sums_of_requests("cpu", lambda shape: False).tolist() == [0, 0, 0]
    assert changes.sums_of_requests("memory", lambda shape: True).tolist() == [0, 0, 0]


def test_whether_a_pod_has_a_lower_priority_follows_the_pods() -> None:
    pods = table([info("a", priority=5)], [info("b", priority=5), info("c", priority=7)])
    assert not pods.has_pod_below(5) and pods.has_pod_below(6)
    pods.remove(0, info("a").uid)
    assert pods.has_pod_below(6)
    pods.remove(1, info("b").uid)
    assert not pods.has_pod_below(7) and pods.has_pod_below(8)


def _millicores(shape: Shape) -> int:
    return shape.requests.get("cpu", 0)


def test_the_last_pod_takes_the_place_of_a_removed_one() -> None:
    pods = table([info("a"), info("b"), info("c")])
    pods.remove(0, info("a").uid)
    assert names(pods, 0) == ["c", "b"]


def test_the_last_row_takes_the_number_of_a_removed_one() -> None:
    pods = table([info("a")], [info("b")], [info("c")])
    pods.remove_row(0)
    assert (names(pods, 0), names(pods, 1)) == (["c"], ["b"])
    assert pods.slot(info("a").uid) is None


def test_columns_grow_with_the_number_of_pods() -> None:
    pods = table([info(f"p{number}", priority=number, cpu=f"{number}m") for number in range(100)])
    slots, _ = pods.slots_on([0])
    assert pods.priority[slots].tolist() == list(range(100))
    assert pods.requested("cpu")[slots].tolist() == list(range(100))
    assert pods.requested("example.com/gpu")[slots].tolist() == [0] * 100


def test_columns_that_have_been_read_grow_too() -> None:
    pods = table([info("first", priority=3, cpu="7m")])
    assert pods.requested("cpu").sum() == 7
    for number in range(200):
        pods.add(info(f"p{number}", priority=1, cpu="2m"), 0)
    slots, _ = pods.slots_on([0])
    assert pods.requested("cpu")[slots].tolist() == [7] + [2] * 200
    assert pods.requested("example.com/gpu")[slots].tolist() == [0] * 201
    assert pods.priority[slots].tolist() == [3] + [1] * 200


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("priority", 3),
        ("start_time", NOT_STARTED),
        ("nonzero_cpu", 7),
        ("nonzero_memory", 200 * 2**20),
        ("shape_number", 0),
    ],
)
def test_each_column_has_the_pods_that_have_been_added(column: str, expected: int) -> None:
    pods = table([info("a", priority=3, cpu="7m")])
    slots, _ = pods.slots_on([0])
    assert getattr(pods, column)[slots].tolist() == [expected]


def test_what_is_known_of_all_pods_includes_those_that_have_been_added() -> None:
    assert list(table([info("a")]).resources) == ["cpu"]
    assert table([info("a")]).requested("cpu").sum() == 1000
    assert [shape for shape in table([info("a")]).shapes.by_number if shape] == [info("a").shape]
    pods = table([info("a", cpu="1e16"), info("b", cpu="-1"), info("c")])
    numbers = [pods.extreme_pods]
    for name in "cab":
        pods.remove(0, info(name).uid)
        numbers.append(pods.extreme_pods)
    assert numbers == [2, 2, 1, 0]


def test_resources_that_no_pod_requests_any_more_give_way_to_others() -> None:
    pods = table([])

    def add(name: str, resource: str) -> PodInfo:
        added = SHAPES.info(pod(name, requests={resource: "1"}))
        pods.add(added, 0)
        assert pods.requested(resource).sum() == 1
        return added

    kept = add("kept", "example.com/kept")
    for number in range(300):
        pods.remove(0, add(f"p{number}", f"example.com/r{number}").uid)
    slots, _ = pods.slots_on([0])
    assert pods.requested("example.com/kept")[slots].tolist() == [1]
    assert pods.requested("example.com/r0").sum() == 0
    assert "example.com/kept" in pods.resources and len(pods.resources) < 300
    pods.remove(0, kept.uid)
    assert pods.shapes.by_number.count(None) == len(pods.shapes.by_number)


def test_a_reused_slot_keeps_nothing_of_the_earlier_pod() -> None:
    pods = table([info("a", priority=7, start_time="2026-01-01T00:00:00Z")])
    slot = pods.slot(info("a").uid)
    assert slot is not None
    pods.remove(0, info("a").uid)
    pods.add(info("b"), 0)
    assert pods.slot(info("b").uid) == slot
    assert (int(pods.priority[slot]), int(pods.start_time[slot])) == (0, NOT_STARTED)


def test_replacing_a_pod_returns_whether_its_start_time_changed() -> None:
    pods = table([info("a")])
    assert pods.replace(info("a", start_time="2026-01-01T00:00:00Z"))
    assert not pods.replace(info("a", start_time="2026-01-01T00:00:00Z"))
    slots, _ = pods.slots_on([0])
    assert pods.start_time[slots].tolist() == [1767225600 * 10**6]


def test_start_times_of_all_years_are_kept() -> None:
    pods = table([info("first", start_time="0001-01-01T00:00:00Z"), info("last", start_time="9999-12-31T23:59:59Z")])
    first, last = (int(pods.start_time[slot]) for slot in pods.slots_on([0])[0])
    assert first < 0 < last < NOT_STARTED


@given(st.lists(st.tuples(st.sampled_from(["add", "remove", "start", "read"]), st.integers(0, 5)), max_size=40))
def test_columns_do_not_depend_on_when_they_are_read(steps: list[tuple[str, int]]) -> None:
    read_at_once, read_late = table([]), table([])
    placed: dict[str, PodInfo] = {}
    for number, (step, kind) in enumerate(steps):
        if step == "add":
            changed = placed[f"p{number}"] = info(f"p{number}", priority=kind, cpu=f"{kind}00m")
        elif step == "remove" and placed:
            _, changed = placed.popitem()
        elif step == "start" and placed:
            name, old = next(iter(placed.items()))
            status = msgspec.structs.replace(old.status, start_time=datetime(2026, 1, 1 + kind, tzinfo=UTC))
            changed = placed[name] = SHAPES.info(msgspec.structs.replace(old.pod, status=status))
        else:
            assert _columns(read_at_once) == _columns(read_late)
            continue
        assert _change(read_at_once, step, changed) == _change(read_late, step, changed)
        _columns(read_at_once)
    assert _columns(read_at_once) == _columns(read_late)


def _change(pods: PodTable, step: str, changed: PodInfo) -> object:
    if step == "add":
        return pods.add(changed, 0)
    if step == "start":
        return pods.replace(changed)
    pods.remove(0, changed.uid)
    return None


def _columns(pods: PodTable) -> list[object]:
    """What is known of the pods on the first row, in order."""
    slots, _ = pods.slots_on([0])
    by_slot = (pods.priority, pods.start_time, pods.nonzero_cpu, pods.nonzero_memory, pods.requested("cpu"))
    shapes = [pods.shapes.by_number[number] for number in pods.shape_number[slots].tolist()]
    return [*(column[slots].tolist() for column in by_slot), shapes, pods.extreme_pods]
