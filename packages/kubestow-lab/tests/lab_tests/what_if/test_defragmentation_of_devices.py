"""Plans of defragmentation in which pods with resource claims move: their devices are released and allocated anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from kubestow.api.core import Pod
from kubestow.api.resource import ResourceClaim
from kubestow.descheduling.defragmentation.plan import DefragmentationPlan
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.testing import node, pod
from kubestow.testing.devices import (
    DRIVER,
    allocation,
    claim,
    device,
    device_class,
    exactly,
    pod_with,
    reserved_for,
    slice_of,
)
from kubestow_lab.simulation.arrivals import Arrival, Arrivals
from kubestow_lab.what_if.defragmentation import DomainsToFree, plan_defragmentation

_OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}

#: A node and the number of one of its NUMA nodes.
Place = tuple[str, int]


@dataclass
class Devices:
    """A cluster in which only devices are scarce: by node the NUMA node of each; a claim is for devices of one."""

    of_nodes: Mapping[str, Sequence[int]]
    pods: list[Pod] = field(default_factory=list)
    claims: list[ResourceClaim] = field(default_factory=list)
    #: How many devices the running pods have, and where, by name.
    running: dict[str, tuple[int, Place]] = field(default_factory=dict)
    used: dict[str, set[int]] = field(default_factory=dict)

    def add(self, name: str, on: str, *numbers: int, owners: Sequence[Any] = (_OWNER,)) -> None:
        """Add a pod, which may move if it has an owner, with these devices of its node."""
        self.used.setdefault(on, set()).update(numbers)
        self.running[name] = len(numbers), (on, self.of_nodes[on][numbers[0]])
        metadata = {"ownerReferences": list(owners)}
        self._add_with_claim(name, len(numbers), metadata, on, [f"g{number}" for number in numbers])

    def gang(self, *counts: int) -> Arrivals:
        """A gang whose pods want so many devices each."""
        before = len(self.pods)
        for number, count in enumerate(counts):
            self._add_with_claim(f"g{number}", count, {})
        found, self.pods = self.pods[before:], self.pods[:before]
        return Arrivals([Arrival(each, 0.0, None, {}) for each in found])

    def _add_with_claim(
        self, name: str, count: int, metadata: Any, on: str = "", allocated: Sequence[str] = ()
    ) -> None:
        status: dict[str, Any] = {}
        if allocated:
            status["allocation"] = allocation(*allocated, at=on, pool=on)
            status["reservedFor"] = reserved_for(f"uid-default-{name}")
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-default-{name}", "controller": True}
        in_one = [{"matchAttribute": f"{DRIVER}/numa"}]
        owners = {"ownerReferences": [owner]}
        own = claim(f"{name}-own", exactly(count), constraints=in_one, metadata=owners, status=status)
        self.claims.append(own)
        references = [{"name": "own", "resourceClaimTemplateName": "own"}]
        of_pod = {"resourceClaimStatuses": [{"name": "own", "resourceClaimName": own.metadata.name}]}
        self.pods.append(
            pod(name, cpu="1", node=on, metadata=metadata, spec={"resourceClaims": references}, status=of_pod)
        )

    def cluster(self) -> ClusterObjects:
        slices = [
            slice_of(*(device(f"g{n}", attributes={"numa": numa}) for n, numa in enumerate(numas)), node=name)
            for name, numas in self.of_nodes.items()
            if numas
        ]
        nodes = [node(name, cpu="16") for name in self.of_nodes]
        return ClusterObjects(nodes=nodes, pods=self.pods, objects=[device_class(), *slices, *self.claims])

    def plan(self, wanted: Arrivals) -> DefragmentationPlan:
        return plan_defragmentation(self.cluster(), wanted, max_moves=3)

    # -- by trying everything ------------------------------------------------------------------------------------------

    def fewest_moves(self, gang: Sequence[int], targets: Mapping[str, str] | None = None) -> int | None:
        """The fewest moves for a gang to fit, whatever their order; None if it cannot. ``targets`` are given nodes.

        A pod that stays keeps its devices.
        """
        places = Counter((name, numa) for name, numas in self.of_nodes.items() for numa in numas)
        pods = [*self.running.items(), *((f"g{number}", (count, None)) for number, count in enumerate(gang))]
        return min(self._moves(dict(places), pods, targets), default=None)

    def _moves(
        self,
        free: dict[Place, int],
        pods: Sequence[tuple[str, tuple[int, Place | None]]],
        targets: Mapping[str, str] | None,
    ) -> Iterator[int]:
        if not pods:
            yield 0
            return
        (name, (count, own)), *others = pods
        for place in free:
            is_moved = own is not None and place != own
            if free[place] < count or (is_moved and own is not None and place[0] == own[0]):
                continue
            if targets is not None and targets.get(name, own and own[0]) != place[0]:
                continue
            free[place] -= count
            yield from (is_moved + moves for moves in self._moves(free, others, targets))
            free[place] += count


def test_a_pod_with_a_claim_leaves_the_node_whose_devices_the_gang_needs() -> None:
    case = Devices({"a": [0, 0], "b": [0, 0]})
    case.add("w0", "a", 0)
    case.add("w1", "b", 1)

    found = case.plan(case.gang(2))

    assert len(found.moves) == found.fewest == 1
    [move] = found.moves
    assert {move.source, move.target} == {"a", "b"}
    assert dict(found.assignments) == {"default/g0": move.source}


def test_of_the_pods_of_one_kind_the_one_moves_whose_device_is_in_the_way() -> None:
    """x stays, without a controller that would replace it; so only the second NUMA node can become free."""
    case = Devices({"a": [0, 0, 1, 1], "b": [0]})
    case.add("w0", "a", 0)
    case.add("w1", "a", 2)
    case.add("x", "a", 1, owners=[])

    found = case.plan(case.gang(2))

    assert [(move.pod, move.target) for move in found.moves] == [("default/w1", "b")]


@pytest.mark.parametrize(
    ("users", "problem"),
    [
        (["w0"], ""),
        (["w0", "w1"], "no pod can be moved: 2 pods share resource claim default/c with other pods"),
    ],
)
def test_pods_that_share_a_claim_stay(users: Sequence[str], problem: str) -> None:
    uids = [f"uid-default-{name}" for name in users]
    status = {"allocation": allocation("g0", at="a", pool="a"), "reservedFor": reserved_for(*uids)}
    case = Devices({"a": [0, 0], "b": [0]})
    case.claims.append(claim("c", status=status))
    case.pods = [pod_with("c", name=name, node="a", metadata={"ownerReferences": [_OWNER]}) for name in users]

    found = case.plan(case.gang(2))

    assert found.problem == problem
    assert [(move.pod, move.target) for move in found.moves] == ([] if problem else [("default/w0", "b")])


def test_a_node_is_not_freed_of_a_pod_whose_claim_is_not_known() -> None:
    case = Devices({"a": [0], "b": [0]})
    case.pods = [pod_with("c", name="w0", node="a", metadata={"ownerReferences": [_OWNER]})]
    free = DomainsToFree(1, nodes=frozenset("a"))

    found = plan_defragmentation(case.cluster(), None, free=free)

    missing = 'has a claim that is not usable: could not find ResourceClaim "default/c"'
    assert found.problem == f"0 of 1 domain can be emptied; a: default/w0 {missing}"


@pytest.mark.parametrize("seed", range(25))
def test_plans_can_be_carried_out_and_none_has_fewer_moves(seed: int) -> None:
    random = Random(f"devices {seed}")
    numas = [[0, 0], [0, 1], [0, 0, 1], [0, 0, 1, 1], [0, 0, 0]]
    case = Devices({name: random.choice(numas) for name in "abc"})
    for number in range(random.randint(2, 4)):
        on = random.choice("abc")
        numa, count = random.choice(case.of_nodes[on]), random.choice([1, 1, 2])
        free = [n for n, of in enumerate(case.of_nodes[on]) if of == numa and n not in case.used.get(on, ())]
        if len(free) >= count:
            case.add(f"w{number}", on, *random.sample(free, count))
    gang = [random.choice([2, 2, 3]) for _ in range(random.randint(1, 2))]

    found = case.plan(case.gang(*gang))

    fewest = case.fewest_moves(gang)
    if not found.exists:
        assert fewest is None or fewest > 3 or "scheduler puts the replacements" in found.problem
        return
    assert fewest is not None
    assert found.fewest <= fewest <= len(found.moves)
    targets = {move.pod: move.target for move in found.moves} | dict(found.assignments)
    targets = {key.removeprefix("default/"): node_name for key, node_name in targets.items()}
    assert case.fewest_moves(gang, targets) == len(found.moves)
