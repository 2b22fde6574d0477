"""The operations createNodes and createNamespaces."""

from __future__ import annotations

from kubestow_lab.scheduler_perf.execution.session import Session
from kubestow_lab.scheduler_perf.workload_files.object_templates import Object
from kubestow_lab.scheduler_perf.workload_files.operations import CreateNamespaces, CreateNodes, NodeAllocatableStrategy

__all__ = ["create_namespaces", "create_nodes"]

_MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"
#: The taint that API servers give to new nodes until a kubelet is ready.
_NOT_READY = "node.kubernetes.io/not-ready"


async def create_nodes(session: Session, operation: CreateNodes, index: int) -> None:
    """Create nodes; strategies are applied before the creation, where scheduler_perf patches afterwards."""
    template = session.template(operation.node_template_path) if operation.node_template_path else None

    async def create(number: int) -> None:
        if template is None:
            node = _default_node(f"node-{index}-")
        else:
            node = template.object(number, operation.count, operation.template_params)
        node |= {"apiVersion": "v1", "kind": "Node"}
        session.named(node)
        _apply_strategies(node, operation, number)
        await _create_ready(session, node)
        if operation.node_allocatable_strategy is not None:
            await session.create(_csi_node(node["metadata"]["name"], operation.node_allocatable_strategy))

    await session.in_parallel(operation.count, create)


def _default_node(generate_name: str) -> Object:
    """A node without a template, of scheduler_perf's size."""
    resources = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    conditions = [{"type": "Ready", "status": "True"}]
    return {
        "metadata": {"generateName": generate_name},
        "status": {"capacity": resources, "allocatable": resources, "conditions": conditions},
    }


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
