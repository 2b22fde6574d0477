"""A gang: how many of its members need nodes, and its terms in words."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.cluster.pods.pod_groups import Members
from kubestow.framework.gang import Gang, Preference, Role, Segments
from kubestow.testing import PluginHarness, pod

ZONE, RACK = "topology.kubernetes.io/zone", "example.com/rack"


def gang(name: str = "g", min_count: int = 0, *, pods: str = "", placed: str = "", **terms: Any) -> Gang:
    """A gang with pods, and some of them placed, each named by a letter that is its uid."""
    members = Members(dict.fromkeys(placed).keys())
    harness = PluginHarness()
    for letter in pods:
        members.put(harness.info(pod(letter, metadata={"uid": letter})))
    return Gang(name, f"uid-{name}", min_count, 1.0, members, **terms)


def roles(**numbers: int) -> tuple[Role, ...]:
    """Roles with the numbers of pods that they need, named by their pods."""
    return tuple(Role(name, number, frozenset(name)) for name, number in numbers.items())


@pytest.mark.parametrize(
    ("min_count", "placed", "missing"),
    [(3, "", 3), (3, "a", 2), (3, "abc", 0), (2, "abc", 0), (0, "", 0)],
)
def test_pods_are_missing_until_as_many_have_nodes_as_the_gang_needs(min_count: int, placed: str, missing: int) -> None:
    found = gang(min_count=min_count, pods="abc", placed=placed)
    assert (found.missing_pods, found.is_satisfied()) == (missing, missing == 0)


@pytest.mark.parametrize(
    ("placed", "missing"), [("", 3), ("a", 3), ("ab", 3), ("c", 2), ("cd", 1), ("ac", 2), ("cde", 0), ("abcd", 1)]
)
def test_pods_of_each_role_are_missing_until_enough_of_them_have_nodes(placed: str, missing: int) -> None:
    found = gang(min_count=1, pods="abcde", placed=placed, roles=roles(ab=0, cd=2, e=1))
    assert (found.missing_pods, found.is_satisfied()) == (missing, missing == 0)


def test_pods_that_are_about_to_get_nodes_satisfy_a_gang() -> None:
    found = gang(min_count=2, pods="abc", placed="a", roles=roles(bc=1))
    assert not found.is_satisfied()
    assert found.is_satisfied("b") and found.is_satisfied({"c", "of another gang"})
    assert not found.is_satisfied({"of another gang"})


def test_of_a_composite_gang_the_cheapest_children_have_to_be_placed() -> None:
    costs = {"one": 1, "two": 2, "five": 5}
    children = tuple(gang(name, cost, pods="abcde") for name, cost in costs.items())
    assert [gang(children=children, min_groups=number).missing_pods for number in range(4)] == [0, 1, 3, 8]
    two = gang(children=(children[2], gang("placed", 1, pods="a", placed="a"), children[0]), min_groups=2)
    assert (two.missing_pods, two.is_satisfied(), two.is_satisfied("a")) == (1, False, True)


def test_the_leaves_of_a_tree_are_the_gangs_without_children() -> None:
    branch = gang("branch", children=(gang("a"), gang("b")))
    assert [leaf.name for leaf in gang(children=(branch, gang("c"))).leaves()] == ["a", "b", "c"]
    assert [leaf.name for leaf in gang("alone").leaves()] == ["alone"]


def test_the_terms_of_topology_in_words_are_those_of_all_levels_without_repetition() -> None:
    segments = Segments(RACK, 2)
    assert gang().topology_text == ""
    assert gang(level=ZONE).topology_text == f"one domain of {ZONE}"
    assert gang(segments=segments).topology_text == f"segments of 2 in domains of {RACK}"
    both = f"one domain of {ZONE} and segments of 2 in domains of {RACK}"
    assert gang(level=ZONE, segments=segments).topology_text == both
    children = (gang(), gang(segments=segments), gang(segments=segments), gang())
    assert gang(level=ZONE, children=children).topology_text == both
    assert gang(children=(gang(), gang())).topology_text == ""


def test_segments_anywhere_in_a_tree_are_those_of_a_leaf() -> None:
    branch = gang("branch", children=(gang("a"), gang("b", segments=Segments(RACK, 2))))
    assert gang(children=(gang("c"), branch)).has_segments
    assert not gang(children=(gang("c"), gang("d"))).has_segments


def test_a_tree_goes_through_the_preferences_of_its_gangs_together() -> None:
    segments = Segments(RACK, 2)
    child = gang("child", level=RACK, preferences=(Preference(ZONE, None),))
    parent = gang(
        "parent", segments=segments, preferences=(Preference(RACK, segments), Preference(ZONE, None)), children=(child,)
    )
    levels = parent.levels()
    assert [(each.level, each.segments) for each in levels] == [(RACK, segments), (ZONE, None), ("", segments)]
    assert [each.children[0].level for each in levels] == [ZONE, RACK, RACK]
    assert not any(each.has_preferences for each in levels)
    assert parent.has_preferences and gang(children=(child,)).has_preferences and not gang().has_preferences
    assert [each.children[0].level for each in gang(children=(child,)).levels()] == [ZONE, RACK]
