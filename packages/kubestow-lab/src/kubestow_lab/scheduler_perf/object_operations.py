"""The operations on nodes, namespaces, resource claims and objects of any kind."""

from __future__ import annotations

import fnmatch
import logging

from kubestow.errors import APIError, InputError
from kubestow.log_fields import fields
from kubestow_lab.scheduler_perf.clusters import ObjectIdentity, reference_to
from kubestow_lab.scheduler_perf.object_templates import Object
from kubestow_lab.scheduler_perf.operations import (
    AllocateResourceClaims,
    Churn,
    CreateAny,
    CreateNamespaces,
    CreateNodes,
    CreateResourceClaims,
    CreateResourceDriver,
    NodeAllocatableStrategy,
    UpdateAny,
)
from kubestow_lab.scheduler_perf.session import Session, WorkloadFailed

_log = logging.getLogger(__name__)

_NOT_FOUND = 404


async def create_any(session: Session, operation: CreateAny) -> None:
    """Create objects. Raises InputError if a namespace is given for a kind without, or missing for one with."""
    template = session.template(operation.template_path)
    if operation.namespace:
        await session.ensure_namespace(operation.namespace)

    async def create(number: int) -> None:
        obj = template.object(number, operation.count, operation.template_params)
        await _check_scope(session, obj, operation.namespace, operation.template_path)
        if obj["kind"] == "Pod":
            session.tracker.creating(operation.namespace, session.named(obj)["metadata"]["name"])
        await session.create(obj, operation.namespace)

    await session.in_parallel(operation.count, create)


async def update_any(session: Session, operation: UpdateAny) -> None:
    """Replace objects (or the given subresources of them) and their status."""
    template = session.template(operation.template_path)
    async for number in session.paced(operation.count, operation.update_per_second):
        obj = template.object(number, operation.count, operation.template_params)
        await _check_scope(session, obj, operation.namespace, operation.template_path)
        await session.cluster.replace(dict(obj), operation.namespace, "/".join(operation.subresources))
        try:
            await session.cluster.replace(dict(obj), operation.namespace, "status")
        except APIError as error:
            if error.code != _NOT_FOUND:  # a kind without a status
                raise
        session.progress.advanced(number + 1, operation.count)


async def _check_scope(session: Session, obj: Object, namespace: str, path: str) -> None:
    subject = str(session.plan.path(path))
    if "kind" not in obj or "metadata" not in obj:
        raise InputError(subject, "expected a Kubernetes object with apiVersion, kind and metadata")
    namespaced = await session.cluster.is_namespaced(obj.get("apiVersion", "v1"), obj["kind"])
    if namespaced and not namespace:
        raise InputError(subject, f"{obj['kind']} is in namespaces, but the operation has no namespace")
    if namespace and not namespaced:
        raise InputError(subject, f"{obj['kind']} is in no namespace, but the operation has namespace {namespace!r}")


async def churn(session: Session, operation: Churn, index: int) -> None:
    """Create objects at an interval, or create and delete them in turn, until cancelled or enough are created.

    An object that cannot be created or deleted is logged and skipped.
    """
    namespace = operation.namespace or f"namespace-{index}"
    templates = [session.template(path) for path in operation.template_paths]
    interval = (operation.interval_milliseconds or 500) / 1000
    existing: dict[tuple[int, int], ObjectIdentity] = {}
    rounds = 0
    next_round = session.clock.monotonic()
    while operation.mode == "recreate" or not operation.number or rounds < operation.number:
        next_round += interval
        await session.clock.sleep(max(0.0, next_round - session.clock.monotonic()))
        for position, template in enumerate(templates):
            slot = (position, rounds % operation.number if operation.mode == "recreate" else rounds)
            reference = existing.pop(slot, None)
            try:
                if reference is not None:
                    await session.cluster.delete(reference)
                    continue
                obj = template.object(0, 1)
                if obj.get("kind") == "Pod":
                    await session.ensure_priority_class(obj)
                await session.create(obj, namespace)
                namespaced = await session.cluster.is_namespaced(obj.get("apiVersion", "v1"), obj["kind"])
            except APIError as error:
                _log.warning("churn: %s", error, extra=fields(err=error))
                continue
            if operation.mode == "recreate":
                existing[slot] = reference_to(obj, namespace if namespaced else "")
        rounds += 1


_MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"
#: The taint that API servers give to new nodes until a kubelet is ready.
_NOT_READY = "node.kubernetes.io/not-ready"


async def create_nodes(session: Session, operation: CreateNodes, index: int) -> None:
    """Create nodes; strategies are applied before the creation, where scheduler_perf patches afterwards."""
    template = session.template(operation.node_template_path) if operation.node_template_path else None

    async def create(number: int) -> None:
        if template is None:  # a node of scheduler_perf's size
            resources = {"cpu": "4", "memory": "32Gi", "pods": "110"}
            ready = {"conditions": [{"type": "Ready", "status": "True"}]}
            status: Object = {"capacity": resources, "allocatable": resources, **ready}
            node: Object = {"metadata": {"generateName": f"node-{index}-"}, "status": status}
        else:
            node = template.object(number, operation.count, operation.template_params)
        node |= {"apiVersion": "v1", "kind": "Node"}
        session.named(node)
        _apply_strategies(node, operation, number)
        await _create_ready(session, node)
        if operation.node_allocatable_strategy is not None:
            await session.create(_csi_node(node["metadata"]["name"], operation.node_allocatable_strategy))

    await session.in_parallel(operation.count, create)


def _apply_strategies(node: Object, operation: CreateNodes, number: int) -> None:
    labels = node["metadata"].setdefault("labels", {})
    labels["kubernetes.io/hostname"] = node["metadata"]["name"]
    label, unique = operation.label_node_prepare_strategy, operation.unique_node_label_strategy
    if label is not None and label.label_values:
        labels[label.label_key] = label.label_values[number % len(label.label_values)]
    if unique is not None:
        labels[unique.label_key] = f"value-{number}"
    if operation.node_allocatable_strategy is not None:
        status = node.setdefault("status", {})
        allocatable = status.get("allocatable") or status.get("capacity") or {}
        status["allocatable"] = allocatable | operation.node_allocatable_strategy.node_allocatable


async def _create_ready(session: Session, node: Object) -> None:
    """Create a node, and remove the taint of new nodes unless the template has it: no kubelet will."""
    created = await session.create(node)
    wanted = node.get("spec", {}).get("taints") or []
    taints = created.get("spec", {}).get("taints") or []
    kept = [taint for taint in taints if taint["key"] != _NOT_READY or taint in wanted]
    if kept != taints:
        # Without a resourceVersion the update is unconditional: controllers may have changed the node already.
        metadata = {key: value for key, value in created["metadata"].items() if key != "resourceVersion"}
        spec = {**created["spec"], "taints": kept}
        await session.cluster.replace({**created, "metadata": metadata, "spec": spec})


def _csi_node(name: str, strategy: NodeAllocatableStrategy) -> Object:
    drivers = [
        {"name": driver, "nodeID": name, "allocatable": allocatable}
        for driver, allocatable in strategy.csi_node_allocatable.items()
    ]
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name, "annotations": {_MIGRATED_PLUGINS: ",".join(strategy.migrated_plugins)}},
        "spec": {"drivers": drivers},
    }


async def create_namespaces(session: Session, operation: CreateNamespaces) -> None:
    """Create the namespaces of a prefix."""
    path = operation.namespace_template_path
    template = session.template(path) if path else None
    for number in range(operation.count):
        obj = template.object(number, operation.count) if template is not None else None
        await session.ensure_namespace(f"{operation.prefix}-{number}", obj)
        session.progress.advanced(number + 1, operation.count)


_VERSION = "resource.k8s.io/v1"

Device = tuple[str, str, str, str]
"""A device: driver, pool, its name, and the node."""


async def create_driver(session: Session, operation: CreateResourceDriver) -> None:
    """Publish a slice of devices for each matching node."""
    nodes = [node["metadata"]["name"] for node in await session.cluster.list_objects("v1", "Node")]
    names = [name for name in nodes if fnmatch.fnmatchcase(name, operation.nodes)]

    async def create(number: int) -> None:
        await session.create(_slice(operation.driver_name, names[number], operation.max_claims_per_node))

    await session.in_parallel(len(names), create)


def _slice(driver: str, node: str, count: int) -> Object:
    """A slice with devices that have the attributes and the capacity of those of scheduler_perf's driver."""
    devices = [
        {
            "name": f"instance-{number}",
            "attributes": {
                "model": {"string": "A100"},
                "family": {"string": "GPU"},
                "driverVersion": {"version": "1.2.3"},
                "dra.example.com/numa": {"int": number},
            },
            "capacity": {"memory": {"value": "1Gi"}},
        }
        for number in range(count)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": _VERSION,
        "kind": "ResourceSlice",
        "metadata": {"name": node},
        "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": devices},
    }


async def create_claims(session: Session, operation: CreateResourceClaims) -> None:
    """Create claims from a template."""
    await session.ensure_namespace(operation.namespace)
    template = session.template(operation.template_path)

    async def create(number: int) -> None:
        claim = template.object(number, operation.count) | {"apiVersion": _VERSION, "kind": "ResourceClaim"}
        await session.create(claim, operation.namespace)

    await session.in_parallel(operation.count, create)


async def allocate_claims(session: Session, operation: AllocateResourceClaims) -> None:
    """Allocate a free device of a random node to each claim that has none.

    Selectors are not evaluated: the device classes of such workloads select all devices of the one driver. Raises
    WorkloadFailed if there are too few devices, or for a claim with several requests.
    """
    claims = await session.cluster.list_objects(_VERSION, "ResourceClaim")
    allocated = {(found["driver"], found["pool"], found["device"]) for claim in claims for found in _results(claim)}
    slices = [piece["spec"] for piece in await session.cluster.list_objects(_VERSION, "ResourceSlice")]
    free: list[Device] = [
        (spec["driver"], spec["pool"]["name"], device["name"], spec["nodeName"])
        for spec in slices
        if spec.get("nodeName")
        for device in spec["devices"]
        if (spec["driver"], spec["pool"]["name"], device["name"]) not in allocated
    ]
    session.random.shuffle(free)
    pending = [
        claim for claim in claims if operation.namespace in ("", claim["metadata"]["namespace"]) and not _results(claim)
    ]
    if len(free) < len(pending):
        raise WorkloadFailed(f"{len(pending)} claims to allocate, but {len(free)} free devices")

    async def allocate(number: int) -> None:
        claim = pending[number]
        claim["status"] = {"allocation": _allocation(session, claim, free[number])}
        await session.cluster.replace(claim, claim["metadata"]["namespace"], "status")

    await session.in_parallel(len(pending), allocate)


def _results(claim: Object) -> list[Object]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results: list[Object] = (allocation.get("devices") or {}).get("results") or []
    return results


def _allocation(session: Session, claim: Object, device: Device) -> Object:
    requests = claim["spec"]["devices"]["requests"]
    if len(requests) != 1:
        name = f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
        raise WorkloadFailed(f"claim {name} has {len(requests)} requests, expected one")
    request, (driver, pool, name, node) = requests[0], device
    alternatives = request.get("firstAvailable")
    requested = f"{request['name']}/{alternatives[0]['name']}" if alternatives else request["name"]
    on_node = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {
        "devices": {"results": [{"request": requested, "driver": driver, "pool": pool, "device": name}]},
        "nodeSelector": {"nodeSelectorTerms": [on_node]},
    }
