"""Small random clusters with devices, and gangs whose pods have claims for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from core_tests.engine.gangs.clusters import EngineCase
from kubestow.api.resource import ResourceClaim, ResourceSlice
from kubestow.testing import node, pod
from kubestow.testing.devices import DRIVER, allocation, claim, device, device_class, exactly, slice_of, subrequests

NET = "net.example.com"


@dataclass
class DeviceCase(EngineCase):
    """A case with slices and claims."""

    slices: list[ResourceSlice] = field(default_factory=list)
    claims: list[ResourceClaim] = field(default_factory=list)
    #: The number of the template of claims, by what they ask for: pods of one shape have the same.
    templates: dict[str, int] = field(default_factory=dict)

    def objects(self) -> list[Any]:
        of_driver = f"device.driver == '{NET}'"
        classes = [device_class("gpu", f"device.driver == '{DRIVER}'"), device_class("net", of_driver)]
        return [*classes, *self.slices, *self.claims]

    def add_pod(
        self, *requests: Any, constraints: Sequence[Any] = (), shared: Sequence[str] = (), cpu: str = "1"
    ) -> None:
        """Add a pod of the gang with a claim of its own for these requests, if any, and some that others share."""
        name = f"w{len(self.pods)}"
        references: list[Any] = [{"name": each, "resourceClaimName": each} for each in shared]
        statuses = []
        if requests:
            owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-default-{name}", "controller": True}
            own = claim(f"{name}-own", *requests, constraints=constraints, metadata={"ownerReferences": [owner]})
            self.claims.append(own)
            template = str(self.templates.setdefault(repr((requests, constraints)), len(self.templates)))
            references.append({"name": "own", "resourceClaimTemplateName": template})
            statuses.append({"name": "own", "resourceClaimName": own.metadata.name})
        spec = {"schedulingGroup": {"podGroupName": "train"}, "resourceClaims": references}
        self.pods.append(pod(name, cpu=cpu, spec=spec, status={"resourceClaimStatuses": statuses}))


def _device(random: Random, name: str, **fields: Any) -> Mapping[str, Any]:
    attributes = {"numa": random.randrange(2), "model": random.choice(["a", "a", "b"])}
    taints = [{"key": "broken", "effect": "NoSchedule"}] if random.random() < 0.1 else []
    return device(name, attributes=attributes, taints=taints, **fields)


def _partitions(random: Random, pool: str, **where: Any) -> list[ResourceSlice]:
    """A pool with shared counters, of which its devices consume different amounts."""
    counters = [{"name": "units", "counters": {"n": {"value": str(random.choice([2, 3, 4]))}}}]
    devices = [
        device(
            f"{pool}-part-{number}",
            attributes={"numa": 0, "model": random.choice("ab")},
            consumesCounters=[{"counterSet": "units", "counters": {"n": {"value": random.choice(["1", "2", "3"])}}}],
        )
        for number in range(random.randint(1, 4))
    ]
    return [
        slice_of(pool=pool, name=f"{pool}-counters", of=2, sharedCounters=counters, **where),
        slice_of(*devices, pool=pool, name=f"{pool}-devices", of=2, **where),
    ]


def _shareable(random: Random, name: str) -> Mapping[str, Any]:
    """A device of which several claims can have parts."""
    capacity = {"memory": {"value": random.choice(["2Gi", "3Gi"]), "requestPolicy": {"default": "1Gi"}}}
    return _device(random, name, capacity=capacity, allowMultipleAllocations=True)


def _in_rack(rack: str) -> dict[str, Any]:
    expression = {"key": "rack", "operator": "In", "values": [rack]}
    return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}


def _node_slices(random: Random, name: str) -> list[ResourceSlice]:
    if random.random() < 0.15:
        return _partitions(random, f"{name}-parts", node=name)
    devices = [
        _shareable(random, f"g{number}") if random.random() < 0.1 else _device(random, f"g{number}")
        for number in range(random.choice([0, 1, 2, 2, 3]))
    ]
    return [slice_of(*devices, node=name)] if devices else []


def _wide_slices(random: Random) -> list[ResourceSlice]:
    """Devices that several nodes can access: those of a rack, of all, or of what each device selects."""
    found: list[ResourceSlice] = []
    driver = random.choice([NET, NET, NET, DRIVER])
    for rack in "ab":
        if random.random() < 0.6:
            devices = [
                _shareable(random, f"c{number}") if random.random() < 0.15 else _device(random, f"c{number}")
                for number in range(random.randint(1, 3))
            ]
            found.append(slice_of(*devices, pool=f"rack-{rack}", driver=driver, nodeSelector=_in_rack(rack)))
    if random.random() < 0.3:
        found.append(slice_of(_device(random, "e0"), pool="everywhere", driver=driver))
    if random.random() < 0.2:
        of_nodes = [_device(random, "p0", allNodes=True), _device(random, "p1", nodeSelector=_in_rack("a"))]
        found.append(slice_of(*of_nodes, pool="per-device", driver=driver, perDeviceNodeSelection=True))
    if random.random() < 0.15:
        found += _partitions(random, "wide-parts", driver=driver)
    return found


def _request(random: Random, of: str, name: str = "r") -> Any:
    model = f"device.attributes['{DRIVER if of == 'gpu' else NET}'].model == 'a'"
    selectors = [model] if random.random() < 0.3 else []
    if random.random() < 0.08:
        return subrequests(2, 1, name=name, of=of)
    extra: dict[str, Any] = {"tolerations": [{"operator": "Exists"}]} if random.random() < 0.1 else {}
    if random.random() < 0.1:
        extra |= {"capacity": {"requests": {"memory": random.choice(["1Gi", "2Gi"])}}}
    if random.random() < 0.05:
        extra |= {"adminAccess": True}
    return exactly(
        random.choice([1, 1, 1, 2, 2, 0] if random.random() < 0.3 else [1, 1, 2]), *selectors, name=name, of=of, **extra
    )


def random_device_case(random: Random) -> DeviceCase:
    """Nodes in racks with devices, some of them in use, and pods with claims, some of which they share."""
    count = random.choice([1, 2, 2, 3, 3, 4])
    nodes = [
        node(f"n{n}", cpu=str(random.choice([1, 2, 4])), labels={"rack": random.choice("ab")}) for n in range(count)
    ]
    case = DeviceCase(nodes, slices=[each for n in range(count) for each in _node_slices(random, f"n{n}")])
    if random.random() < 0.6:
        case.slices += _wide_slices(random)
    published = [(each.spec, each_device) for each in case.slices for each_device in each.spec.devices]
    for number, (spec, used) in enumerate(published):
        if random.random() < 0.12 and not used.allow_multiple_allocations:
            where = spec.node_name or None
            of_device = allocation(used.name, at=where, driver=spec.driver, pool=spec.pool.name)
            case.claims.append(claim(f"old-{number}", status={"allocation": of_device}))
    shared = [f"shared-{number}" for number in range(random.choice([0, 0, 1, 1, 2]))]
    for name in shared:
        case.claims.append(claim(name, _request(random, random.choice(["gpu", "net", "net"]))))
    roles: list[dict[str, Any]] = []
    for _ in range(random.choice([1, 1, 2, 2, 3])):
        requests = []
        if random.random() < 0.8 or not shared:
            requests.append(_request(random, random.choice(["gpu", "gpu", "net"])))
            if random.random() < 0.25:
                requests.append(_request(random, random.choice(["gpu", "net"]), name="s"))
        constraints = []
        if requests and random.random() < 0.4:
            domain = random.choice([DRIVER, DRIVER, NET])
            constraints = [{"matchAttribute": f"{domain}/numa"}]
        named = [name for name in shared if random.random() < 0.6]
        roles.append({"requests": requests, "constraints": constraints, "shared": named})
    for _ in range(random.randint(1, 5)):
        role = random.choice(roles)
        case.add_pod(*role["requests"], constraints=role["constraints"], shared=role["shared"])
    case.needed = random.randint(max(1, len(case.pods) - 1), len(case.pods))
    case.requires, case.prefers = random.choice([("", "")] * 6 + [("rack", ""), ("", "rack")])
    return case
