"""What gangs ask for themselves: segments, roles, trees of groups, a fixed core with an elastic rest."""

from __future__ import annotations

import pytest

from core_tests.engine.gangs.terms import FEATURES, Case, difference

pytest.importorskip("ortools", reason="kubestow[solvers] is not installed")

ZONES = {"n0": "a", "n1": "b"}


@pytest.mark.parametrize("feature", FEATURES)
def test_a_gang_is_placed_if_and_only_if_it_can_be(feature: str) -> None:
    assert [found for seed in range(60) if (found := difference(feature, seed))] == []


# -- groups that kube-scheduler does not place although they fit -----------------------------------------------------


def test_segments_are_not_torn_by_the_best_node_for_each_pod() -> None:
    """The emptier zone attracts one pod after the other; three and one are no segments of two."""
    pods = dict.fromkeys(("a", "b", "c", "d"), 1)
    search, gang = Case({"n0": 5, "n1": 2}, ZONES, [pods], [4], {}, {}, segment=2).gang()

    answer = search.find(gang)

    assert answer.is_placed
    assert sorted(name for _, name in answer.assignments) in (["n0", "n0", "n1", "n1"], ["n0"] * 4)


def test_a_segment_that_has_lost_a_pod_is_completed_in_its_domain() -> None:
    case = Case({"n0": 1, "n1": 9}, ZONES, [{"new": 1}], [2], {}, {}, segment=2, existing={"old": "n0"})
    search, gang = case.gang()

    assert [name for _, name in search.find(gang).assignments] == ["n0"]


def test_no_segments_are_whole_by_a_label_that_the_node_of_a_member_lacks() -> None:
    case = Case(
        {"n0": 1, "n1": 2},
        ZONES,
        [{"a": 1, "b": 1}],
        [3],
        {},
        {},
        existing={"old": "n0"},
        racks={"n1": "b1"},
        segments_prefer=["rack"],
        segment_size=2,
    )
    search, gang = case.gang()

    answer = search.find(gang)

    [passed_over] = answer.passed_over
    [certificate] = passed_over.certificates
    assert answer.is_placed
    assert [shortage.constraint for shortage in certificate.shortages] == ["segments of pods per domain"]


def test_the_certificate_names_the_segments() -> None:
    search, gang = Case({"n0": 1, "n1": 1}, ZONES, [{"a": 1, "b": 1}], [2], {}, {}, segment=2).gang()

    [certificate] = search.find(gang).certificates

    assert "segments of pods per domain" in [shortage.constraint for shortage in certificate.shortages]


def test_a_role_gets_the_room_that_pods_of_another_role_would_take() -> None:
    pods = {"a-worker": 1, "b-worker": 1, "driver": 2}
    by_role = {"worker": ["a-worker", "b-worker"], "driver": ["driver"]}
    search, gang = Case({"n0": 2}, ZONES, [pods], [1], by_role, {"driver": 1}).gang()

    answer = search.find(gang)

    assert answer.found_by == "search"
    assert [info.pod.metadata.name for info, _ in answer.assignments] == ["driver"]


def test_groups_of_a_tree_are_each_in_one_zone() -> None:
    groups = [{"x0": 1, "x1": 1}, {"y0": 2, "y1": 1}]
    case = Case({"n0": 3, "n1": 2}, ZONES, groups, [2, 2], {}, {}, in_one_zone=frozenset({0, 1}), min_groups=2)
    search, gang = case.gang()

    placed = {info.pod.metadata.name: name for info, name in search.find(gang).assignments}

    assert placed == {"x0": "n1", "x1": "n1", "y0": "n0", "y1": "n0"}


def test_a_further_pod_is_placed_at_a_level_at_which_it_fits() -> None:
    """The gang has enough pods already; the segments that it prefers would not be whole."""
    old = {"old": "n0"}
    case = Case({"n0": 2}, ZONES, [{"new": 2}], [1], {}, {}, existing=old, segments_prefer=["zone"], segment_size=3)
    search, gang = case.gang()

    assert [name for _, name in search.find(gang).assignments] == ["n0"]
