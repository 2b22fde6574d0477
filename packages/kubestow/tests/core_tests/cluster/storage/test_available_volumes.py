"""Matching volumes for all nodes at once equals matching them for one node after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kubestow.api.formats.quantity import nanos
from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim
from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.storage.available_volumes import NO_VOLUME
from kubestow.rules.volumes import requirements_of
from kubestow.testing import node
from kubestow.testing.storage import claim, volume

ZONE = "topology.kubernetes.io/zone"
ZONES = st.sampled_from(["a", "b", "c"])
SIZES = st.sampled_from(["1Gi", "2Gi", "3Gi"])
NAMES = st.sampled_from([f"pv-{number}" for number in range(8)])

volumes = st.builds(
    lambda name, **fields: volume(name, **fields),
    NAMES,
    size=SIZES,
    zone=st.none() | ZONES,
    claim=st.sampled_from(["", "", "", "x", "y"]),
    modes=st.sampled_from([["ReadWriteOnce"], ["ReadWriteOnce", "ReadOnlyMany"], ["ReadOnlyMany"]]),
    phase=st.sampled_from(["Available", "Available", "Bound"]),
    storage_class=st.sampled_from(["slow", "slow", "fast"]),
)
claims = st.lists(
    st.builds(
        lambda name, size, mode: claim(name, size=size, modes=[mode]),
        st.sampled_from(["x", "y", "z"]),
        SIZES,
        st.sampled_from(["ReadWriteOnce", "ReadOnlyMany"]),
    ),
    min_size=1,
    max_size=6,
)


def plainly_chosen(
    wanted: PersistentVolumeClaim, offered: Sequence[PersistentVolume], zone: str, taken: set[str]
) -> str | None:
    """The rule (semantics 8.12) for one node: the name of the volume that a claim would be bound to."""
    best: PersistentVolume | None = None
    for pv in sorted(offered, key=lambda pv: pv.metadata.name):
        reserved = pv.spec.claim_ref
        if pv.metadata.name in taken or pv.spec.storage_class_name != wanted.spec.storage_class_name:
            continue
        if reserved is not None and reserved.name != wanted.metadata.name:
            continue
        if _size(pv) < nanos(wanted.spec.resources.requests["storage"]):
            continue
        if reserved is not None:
            return pv.metadata.name if _reaches(pv, zone) else None
        if pv.status.phase != "Available" or not _reaches(pv, zone):
            continue
        if set(wanted.spec.access_modes) <= set(pv.spec.access_modes) and (best is None or _size(pv) < _size(best)):
            best = pv
    return best.metadata.name if best is not None else None


def _size(pv: PersistentVolume) -> int:
    return nanos(pv.spec.capacity["storage"])


def _reaches(pv: PersistentVolume, zone: str) -> bool:
    if pv.spec.node_affinity is None or pv.spec.node_affinity.required is None:
        return True
    (term,) = pv.spec.node_affinity.required.node_selector_terms
    return zone in term.match_expressions[0].values


def agree(cluster: Cluster, wanted: Sequence[PersistentVolumeClaim]) -> None:
    offered = list(cluster.catalog(PersistentVolume))
    wanted = sorted(wanted, key=lambda one: requirements_of(one).size)
    order = np.roll(np.arange(len(cluster.nodes)), 1)
    for nodes in (cluster.all_nodes(), Nodes(cluster.nodes, order), Nodes(cluster.nodes, slice(0, 1))):
        _agree(cluster, nodes, offered, wanted)


def _agree(
    cluster: Cluster, nodes: Nodes, offered: Sequence[PersistentVolume], wanted: Sequence[PersistentVolumeClaim]
) -> None:
    matching = cluster.volumes.available.matching(nodes)
    taken = [matching.match(one, requirements_of(one)) for one in wanted]
    for row, name in enumerate(nodes.names):
        mine: set[str] = set()
        for one, choice in zip(wanted, taken, strict=True):
            expected = plainly_chosen(one, offered, nodes.node(row).metadata.labels[ZONE], mine)
            number = int(choice.numbers[row])
            assert (None if number == NO_VOLUME else choice.volumes[number].metadata.name) == expected, (name, one)
            mine |= {expected} if expected else set()


@given(st.lists(volumes, max_size=8), st.lists(ZONES, min_size=1, max_size=4), claims)
def test_matching_all_nodes_at_once_equals_matching_one_by_one(
    offered: list[PersistentVolume], zones: list[str], wanted: list[PersistentVolumeClaim]
) -> None:
    cluster = Cluster()
    for number, zone in enumerate(zones):
        cluster.add_node(node(f"n{number}", zone=zone))
    for pv in offered:
        cluster.catalog(PersistentVolume).put(pv)
    agree(cluster, wanted)


class AvailableVolumesMachine(RuleBasedStateMachine):
    """Matches are correct while volumes and nodes are added, changed and removed."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.cluster.add_node(node("n0", zone="a"))

    @rule(pv=volumes)
    def volume_is_added_or_changed(self, pv: PersistentVolume) -> None:
        self.cluster.catalog(PersistentVolume).put(pv)

    @rule(name=NAMES)
    def volume_is_removed(self, name: str) -> None:
        self.cluster.catalog(PersistentVolume).remove("", name)

    @rule(name=NAMES)
    def volume_is_assumed(self, name: str) -> None:
        pv = self.cluster.catalog(PersistentVolume).get("", name)
        if pv is not None and pv.spec.claim_ref is None:
            self.cluster.catalog(PersistentVolume).assume(volume(name, claim="y"))

    @rule(name=NAMES)
    def assumption_is_undone(self, name: str) -> None:
        self.cluster.catalog(PersistentVolume).restore("", name)

    @rule(number=st.integers(0, 3), zone=ZONES)
    def node_is_added_or_moved(self, number: int, zone: str) -> None:
        observed = node(f"n{number}", zone=zone)
        if observed.metadata.name in self.cluster.nodes.rows:
            self.cluster.update_node(observed)
        else:
            self.cluster.add_node(observed)

    @rule(number=st.integers(0, 3))
    def node_is_removed(self, number: int) -> None:
        if f"n{number}" in self.cluster.nodes.rows and len(self.cluster.nodes) > 1:
            self.cluster.remove_node(f"n{number}")

    @invariant()
    def matches_are_correct(self) -> None:
        agree(self.cluster, [claim("x"), claim("z"), claim("z", size="2Gi")])


AvailableVolumesMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25)
TestAvailableVolumesMachine = AvailableVolumesMachine.TestCase


BOTH = ["ReadWriteOnce", "ReadOnlyMany"]


def matched(cluster: Cluster, *wanted: PersistentVolumeClaim) -> list[list[str | None]]:
    """The names of the volumes of some claims on each node, by node."""
    matching = cluster.volumes.available.matching(cluster.all_nodes())
    matches = [matching.match(one, requirements_of(one)) for one in wanted]
    names: list[list[str | None]] = [
        [None if number == NO_VOLUME else match.volumes[number].metadata.name for number in match.numbers.tolist()]
        for match in matches
    ]
    return [list(of_node) for of_node in zip(*names, strict=True)]


def test_claims_that_differ_do_not_get_the_same_volume_on_any_of_many_nodes() -> None:
    cluster = Cluster()
    for number in range(100):
        cluster.add_node(node(f"n{number}", zone="ab"[number % 2]))
    for number in range(9):
        cluster.catalog(PersistentVolume).put(volume(f"pv-{number}", modes=BOTH, zone="ab"[number % 2]))
    modes = ("ReadWriteOnce", "ReadWriteOnce", "ReadOnlyMany", "ReadWriteOnce", "ReadOnlyMany")
    found = matched(cluster, *(claim(f"c{number}", modes=[mode]) for number, mode in enumerate(modes)))
    assert found[::2] == [["pv-0", "pv-2", "pv-4", "pv-6", "pv-8"]] * 50
    assert found[1::2] == [["pv-1", "pv-3", "pv-5", "pv-7", None]] * 50


def test_a_volume_that_comes_back_is_found_where_it_is_accessible_now_and_by_its_size() -> None:
    cluster = Cluster()
    for zone in "ab":
        cluster.add_node(node(f"n-{zone}", zone=zone))
    catalog = cluster.catalog(PersistentVolume)
    catalog.put(volume("moving", zone="a"))
    catalog.put(volume("other", storage_class="slow", size="9Gi", zone="a"))
    small, large = claim("c"), claim("d", size="2Gi")
    assert (matched(cluster, small), matched(cluster, large)) == ([["moving"], [None]], [["other"], [None]])
    catalog.put(volume("moving", zone="a", claim="someone"))
    assert matched(cluster, small) == [["other"], [None]]
    catalog.put(volume("moving", zone="a"))
    assert matched(cluster, small) == [["moving"], [None]]
    catalog.put(volume("moving", zone="a", claim="someone"))
    catalog.put(volume("moving", zone="b"))
    assert matched(cluster, small) == [["other"], ["moving"]]
    catalog.put(volume("moving", zone="b", claim="someone"))
    catalog.put(volume("moving", zone="b", size="3Gi"))
    assert matched(cluster, large) == [["other"], ["moving"]]
    catalog.remove("", "moving")
    assert matched(cluster, small, large) == [["other", None], [None, None]]


def test_many_kinds_of_claims_are_matched_one_after_another() -> None:
    cluster = Cluster()
    cluster.add_node(node("n"))
    for number in range(60):
        labels = {"number": str(number)}
        cluster.catalog(PersistentVolume).put(volume(f"pv-{number}", labels=labels))
    for number in (*range(60), *range(60)):
        selector = {"matchLabels": {"number": str(number)}}
        assert matched(cluster, claim("c", selector=selector)) == [[f"pv-{number}"]]


def test_reserved_volumes_decide_for_the_nodes_one_after_another() -> None:
    cluster = Cluster()
    for zone in "ab":
        cluster.add_node(node(f"n-{zone}", zone=zone))
    catalog = cluster.catalog(PersistentVolume)
    for name, zone in (("pv-1", "a"), ("pv-2", "b")):
        catalog.put(volume(name, zone=zone, claim="c"))
    catalog.put(volume("free", storage_class="slow"))
    wanted = claim("c")
    assert matched(cluster, wanted) == [["pv-1"], [None]], "the first one decides, even where it is not accessible"
    assert matched(cluster, wanted, wanted) == [["pv-1", None], [None, None]]
    assert matched(cluster, claim("other")) == [["free"], ["free"]]
    catalog.remove("", "pv-1")
    assert matched(cluster, wanted) == [[None], ["pv-2"]]
    catalog.remove("", "pv-2")
    assert matched(cluster, wanted) == [["free"], ["free"]]


def test_a_volume_is_not_taken_twice_where_a_reserved_one_is_taken_already() -> None:
    cluster = Cluster()
    for zone in "ab":
        cluster.add_node(node(f"n-{zone}", zone=zone))
    for pv in (volume("mine", zone="a", claim="c"), volume("free-1"), volume("free-2")):
        cluster.catalog(PersistentVolume).put(pv)
    mine, other = claim("c"), claim("d")
    assert matched(cluster, mine, other, other) == [["mine", "free-1", "free-2"], [None, "free-1", "free-2"]]
    assert matched(cluster, other, mine, other) == [["free-1", "mine", "free-2"], ["free-1", None, "free-2"]]
    assert matched(cluster, mine, mine, other)[0] == ["mine", "free-1", "free-2"]


def test_a_volume_that_comes_back_is_as_it_is_now() -> None:
    cluster = Cluster()
    cluster.add_node(node("n"))
    catalog = cluster.catalog(PersistentVolume)
    catalog.put(volume("other", modes=["ReadOnlyMany"]))
    catalog.put(volume("pv", modes=["ReadWriteOnce"]))
    wanted = claim("c", modes=["ReadWriteOnce"])
    assert matched(cluster, wanted) == [["pv"]]
    for modes, version, expected in (
        (["ReadWriteOnce", "ReadOnlyMany"], "2", "pv"),
        (["ReadOnlyMany"], "3", None),
        (["ReadWriteOnce"], "4", "pv"),
    ):
        catalog.put(volume("pv", modes=modes, claim="someone"))
        assert matched(cluster, wanted) == [[None]]
        catalog.put(volume("pv", modes=modes, metadata={"resourceVersion": version}))
        assert matched(cluster, wanted) == [[expected]]
        if expected is not None:
            match = cluster.volumes.available.matching(cluster.all_nodes()).match(wanted, requirements_of(wanted))
            assert match.volumes[match.numbers.item()].metadata.resource_version == version
