"""All small gangs: a part of them here, and what they are compared with."""

from __future__ import annotations

import pytest

from core_tests.engine.gangs.small_gangs import (
    DOMAINS,
    HOSTNAME,
    ZONE,
    Nodes,
    Rules,
    SmallCluster,
    SmallGang,
    cases,
    differences,
    node_sets,
)
from core_tests.engine.gangs.terms import Case

pytest.importorskip("ortools", reason="kubestow[solvers] is not installed")


@pytest.mark.parametrize("domain", DOMAINS)
def test_small_gangs_are_placed_if_and_only_if_they_can_be(domain: str) -> None:
    count, found = differences(domain, nodes=3, pods=3, every=40 if domain == "pairs" else 10)

    assert count >= 5
    assert found == []


@pytest.mark.parametrize("domain", ["segments", "roles", "levels", "levels_of_segments", "trees_in_zones"])
def test_the_plain_model_agrees_with_trying_every_pod_on_every_node(domain: str) -> None:
    every = [(nodes, gang) for nodes, gangs in cases(domain, nodes=3, pods=4) for gang in gangs]
    sample = every[:: max(1, len(every) // 150)]

    assert [each for each in sample if each[1].best_level(each[0]) != _case(*each).best_level()] == []


def _case(nodes: Nodes, gang: SmallGang) -> Case:
    """The same gang for the other plain model."""
    names = {HOSTNAME: "node", ZONE: "zone"}
    parts = [
        {f"p{part}-{cpu}-{number}": cpu for cpu, count in enumerate(counts, start=1) for number in range(count)}
        for part, counts in enumerate(gang.parts)
    ]
    roles = {f"r{part}": list(pods) for part, pods in enumerate(parts)} if gang.roles else {}
    return Case(
        {f"n{number}": cpu for number, (cpu, _) in enumerate(nodes)},
        {f"n{number}": zone for number, (_, zone) in enumerate(nodes)},
        parts if gang.min_groups else [{name: cpu for pods in parts for name, cpu in pods.items()}],
        gang.minimums,
        roles,
        {f"r{part}": least for part, least in enumerate(gang.roles)},
        segment=gang.rules.segments[1],
        in_one_zone=gang.rules.parts_in_zone,
        min_groups=gang.min_groups or 1,
        prefers=[names[key] for key in gang.prefers],
        segments_prefer=[names[key] for key, _ in gang.segments_prefer],
        segment_size=gang.segments_prefer[0][1] if gang.segments_prefer else 0,
    )


def test_nodes_that_differ_in_names_of_zones_alone_occur_once() -> None:
    assert node_sets(2, 2) == [
        ((1, "a"),),
        ((2, "a"),),
        ((1, "a"), (1, "a")),
        ((1, "a"), (2, "a")),
        ((1, "a"), (1, "b")),
        ((1, "a"), (2, "b")),
        ((2, "a"), (2, "a")),
        ((2, "a"), (2, "b")),
    ]


def test_kinds_of_pods_that_need_each_other_are_in_one_domain() -> None:
    """Neither kind can come first in two zones, nor can one be first in each: no placement takes five of the pods."""
    cluster = SmallCluster(tuple((2, zone) for zone in "aaabbb"))

    assert cluster.difference(SmallGang(((3, 4),), (5,), Rules(between=f"affinity {ZONE}"))) == ""


@pytest.mark.parametrize(("part", "minimum"), [((4, 2), 5), ((5, 2), 5), ((4, 3), 5)])
def test_pods_of_several_sizes_are_spread_together(part: tuple[int, int], minimum: int) -> None:
    """One pod fits in the small zone, so the large one takes three with a skew of two, whatever their sizes."""
    cluster = SmallCluster(((1, "a"), *((2, "b"),) * 5))

    assert cluster.difference(SmallGang((part,), (minimum,), Rules(between=f"spread 2 {ZONE}"))) == ""
