"""What an object costs the scheduler grows no faster than the object, whatever field of it is large.

The fields are found in the structs that objects are decoded into, so that a new one is tried as well: every list and
every mapping, at any depth, is filled with 1,000 and with 4,000 items, all different, in a cluster with placed pods
that it may select. The CPU time and the memory of deciding about the object, of events beside it and of its deletion
are compared. Run as a module, it prints the table of all fields: ``python -m tests.security.test_costs [SIZE ...]``.
"""

from __future__ import annotations

import gc
import math
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
import pytest

from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from kubestow.api.scheduling import CompositePodGroup, PodGroup
from kubestow.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from kubestow.rules.minors import Minor
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

KINDS = (
    Pod,
    Node,
    ResourceClaim,
    ResourceSlice,
    DeviceClass,
    PersistentVolumeClaim,
    PersistentVolume,
    StorageClass,
    CSINode,
    PodGroup,
    CompositePodGroup,
)
#: The version that has the most of groups: they are entities of its queue.
OPTIONS_OF_GROUPS: dict[str, Any] = {
    "minor": Minor(37),
    "gates": {"GenericWorkload": True, "CompositePodGroup": True, "TopologyAwareWorkloadScheduling": True},
}
#: Where the name of a field says what may be in it; other strings are a letter and the number of the item.
VALUES: dict[str, Callable[[int], Any]] = {
    "operator": lambda number: "NotIn",
    "effect": lambda number: ("NoSchedule", "PreferNoSchedule")[number % 2],
    "whenUnsatisfiable": lambda number: ("DoNotSchedule", "ScheduleAnyway")[number % 2],
    "topologyKey": lambda number: ("kubernetes.io/hostname", "topology.kubernetes.io/zone", f"k{number}")[number % 3],
    "restartPolicy": lambda number: "Always",
    "nodeName": lambda number: "",
    "nominatedNodeName": lambda number: "",
    "schedulerName": lambda number: "default-scheduler",
    "preemptionPolicy": lambda number: "PreemptLowerPriority",
    "priority": lambda number: 0,
    "phase": lambda number: "Pending",
    "protocol": lambda number: "TCP",
    "hostIP": lambda number: f"10.0.{number // 250}.{number % 250}",
    "uid": lambda number: f"uid-{number}",
    "schedulingGates": lambda number: [],
    "expression": lambda number: "true",
    "resourceVersion": lambda number: "1",
    "allocationMode": lambda number: "ExactCount",
}
#: The fields that are filled beside the one that is large, and those of its items besides.
FILLED = frozenset({"spec", "labelSelector", "podAffinityTerm", "preference", "containers", "values", "names"})
FILLED_IN_ITEMS = frozenset({"resources", "requests", "persistentVolumeClaim", "matchExpressions", "exactly"})

Path = tuple[str, ...]


def _plain(kind: Any) -> Any:
    """A type without None and annotations."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) in (Union, UnionType):
        return _plain(next(one for one in get_args(kind) if one is not NoneType))
    return kind


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    return tuple((one.encode_name, _plain(one.type)) for one in msgspec.structs.fields(kind))


def large_fields(kind: type[msgspec.Struct], path: Path = ()) -> Iterator[Path]:
    """The paths of all lists and mappings of a kind of object."""
    for name, of in _fields(kind):
        yield from _large(of, (*path, name))


def _large(of: Any, path: Path) -> Iterator[Path]:
    if get_origin(of) in (list, dict, tuple, frozenset):
        yield path
        of = _plain(get_args(of)[-1])
        if get_origin(of) in (list, dict):
            yield from _large(of, (*path, "*"))
    if isinstance(of, type) and issubclass(of, msgspec.Struct) and len(path) < 12:
        yield from large_fields(of, path)


def build(kind: type[msgspec.Struct], path: Path, size: int) -> Any:
    """An object whose field at a path has so many items, and only what it needs besides."""
    document = _struct(kind, path, 0, size)
    document["metadata"] = {"name": "large", "namespace": "default", "uid": "large"} | document.get("metadata", {})
    return msgspec.convert(document, kind, strict=False)


def _struct(kind: type[msgspec.Struct], path: Path, number: int, size: int, *, item: bool = False) -> dict[str, Any]:
    filled = FILLED | FILLED_IN_ITEMS if item else FILLED
    document = {}
    for name, of in _fields(kind):
        is_plain = get_origin(of) is None and not (isinstance(of, type) and issubclass(of, msgspec.Struct))
        if path and name == path[0]:
            document[name] = _value(of, name, path[1:], number, size, on_path=True)
        elif is_plain or name in filled:
            document[name] = _value(of, name, (), number, size, item=item)
    return {name: value for name, value in document.items() if value is not None}


def _value(of: Any, name: str, path: Path, number: int, size: int, *, on_path: bool = False, item: bool = False) -> Any:
    if name.endswith(("Time", "Timestamp")):
        return None
    if name in VALUES and not on_path:
        return VALUES[name](number)
    if path and path[0] == "*":
        path = path[1:]
    origin, is_large = get_origin(of), on_path and not path
    numbers = range(number, number + size) if is_large else (number,)
    inner: dict[str, Any] = {"on_path": on_path and not is_large, "item": is_large or item}
    if origin in (list, tuple, frozenset):
        return [_value(_plain(get_args(of)[0]), "", path, one, size, **inner) for one in numbers]
    if origin is dict:
        value = _plain(get_args(of)[1])
        return {f"example.com/r{one}": _value(value, "quantity", path, one, size, **inner) for one in numbers}
    if isinstance(of, type) and issubclass(of, msgspec.Struct):
        return _struct(of, path, number, size, item=item)
    if of in (int, float):
        return number + 1 if name == "hostPort" else 1 + number % 100
    if of is str:
        return "1" if name == "quantity" else f"v{number}"
    return None


def _users_of(large: Any, name: str) -> Iterator[Any]:
    """The pods that use an object and what they need besides; none for an object that none has to name."""
    spec: dict[str, Any] = {}
    match large:
        case ResourceClaim():
            spec = {"resourceClaims": [{"name": "claim", "resourceClaimName": name}]}
        case PersistentVolumeClaim():
            spec = {"volumes": [{"name": "claim", "persistentVolumeClaim": {"claimName": name}}]}
        case PodGroup():
            spec = {"schedulingGroup": {"podGroupName": name}}
        case CompositePodGroup():
            spec = {"schedulingGroup": {"podGroupName": f"leaf-{name}"}}
            metadata = {"name": f"leaf-{name}", "namespace": "default", "uid": f"leaf-{name}"}
            yield convert(PodGroup, {"metadata": metadata, "spec": {"parentCompositePodGroupName": name}})
    if spec:
        yield pod(f"user-{name}", spec=spec)


SHAPES, NODES = 20, 20
#: The garbage collections that are measured look at what these tests create.
pytestmark = pytest.mark.usefixtures("only_own_garbage")


def cost(kind: type[msgspec.Struct], path: Path, size: int, *, allocation: bool = False, shapes: int = SHAPES) -> float:
    """The CPU seconds, or the bytes at their peak, that an object and a copy of it cost."""
    large = build(kind, path, size)
    spent = 0.0

    async def scenario(harness: SchedulerHarness) -> None:
        nonlocal spent
        for number in range(shapes):
            placed = pod(f"placed-{number}", node=f"n{number % NODES}", labels={"app": f"a{number}", "v0": "v1"})
            harness.cluster.put(placed)
        await harness.advance(2)
        gc.collect()
        if allocation:
            tracemalloc.start()
        start = time.process_time()
        for name in ("large", "copy"):
            metadata = msgspec.structs.replace(large.metadata, name=name, uid=name)
            harness.cluster.put(msgspec.structs.replace(large, metadata=metadata))
            for user in _users_of(large, name):
                harness.cluster.put(user)
            await harness.advance(3)
        for number in range(2):
            harness.cluster.put(pod(f"victim-{number}", cpu="10m", labels={"app": f"b{number}"}))
        harness.cluster.remove(harness.cluster.pod("placed-0"))
        harness.cluster.put(node("n0", zone="z0", labels={"changed": "yes"}))
        await harness.advance(3)
        for name in ("large", "copy"):
            metadata = msgspec.structs.replace(large.metadata, name=name, uid=name)
            harness.cluster.remove(msgspec.structs.replace(large, metadata=metadata))
        await harness.advance(3)
        spent = time.process_time() - start
        if allocation:
            spent = float(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert harness.node_of("victim-0") and harness.node_of("victim-1")

    options = OPTIONS_OF_GROUPS if kind in (PodGroup, CompositePodGroup) else {}
    in_virtual_time(scenario, *[node(f"n{number}", zone=f"z{number % 3}") for number in range(NODES)], **options)
    return spent


@cache
def fixed_cost(kind: type[msgspec.Struct], *, allocation: bool) -> float:
    """What an object of a kind costs without large fields."""
    return max(cost(kind, (), 1, allocation=allocation) for _ in range(3))


def exponent(kind: type[msgspec.Struct], path: Path, smaller: int, larger: int, *, allocation: bool = False) -> float:
    """The growth of the cost: 1 is linear, 2 quadratic; 0 where it is too little beside the fixed cost to be fitted."""
    floor = 2 * fixed_cost(kind, allocation=allocation)
    of_larger = cost(kind, path, larger, allocation=allocation)
    if of_larger < floor:
        return 0.0
    of_smaller = max(cost(kind, path, smaller, allocation=allocation), floor / 2)
    return math.log(of_larger / of_smaller) / math.log(larger / smaller)


FIELDS = [(kind, path) for kind in KINDS for path in large_fields(kind)]
IDS = [f"{kind.__name__}.{'.'.join(path)}" for kind, path in FIELDS]


@pytest.mark.parametrize(("kind", "path"), FIELDS, ids=IDS)
def test_a_field_costs_time_and_memory_in_proportion_to_its_size(kind: type[msgspec.Struct], path: Path) -> None:
    fixed_cost(kind, allocation=False)  # imports and caches of the process
    # Other processes disturb the CPU's caches, so that one measurement in three has to be linear.
    assert any(exponent(kind, path, 500, 2000) < 1.5 for _ in range(3))
    assert exponent(kind, path, 200, 800, allocation=True) < 1.4


def print_table(sizes: list[int]) -> None:
    """Print what every field costs at each size, with the exponents between the smallest and the largest size."""
    write = sys.stdout.write
    write("field | " + " | ".join(f"n={size}" for size in sizes) + " | exponent of time | of memory\n")
    for (kind, path), name in zip(FIELDS, IDS, strict=True):
        seconds = [cost(kind, path, size) for size in sizes]
        grown = [exponent(kind, path, sizes[0], sizes[-1], allocation=allocation) for allocation in (False, True)]
        write(" | ".join((name, *(f"{one:.3f}" for one in seconds), *(f"{one:.2f}" for one in grown))) + "\n")


if __name__ == "__main__":
    print_table([int(size) for size in sys.argv[1:]] or [1000, 2000, 4000, 8000])
