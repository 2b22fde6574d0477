"""The operations createAny, updateAny and churn: objects of any kind."""

from __future__ import annotations

import logging

from kubestow.errors import APIError, InputError
from kubestow.log_fields import fields
from kubestow_lab.scheduler_perf.clusters.interface import ObjectReference, reference_to
from kubestow_lab.scheduler_perf.execution.session import Session
from kubestow_lab.scheduler_perf.workload_files.object_templates import Object, ObjectTemplate
from kubestow_lab.scheduler_perf.workload_files.operations import Churn, CreateAny, UpdateAny

__all__ = ["churn", "create_any", "update_any"]

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
        await _replace_status(session, obj, operation.namespace)
        session.progress.advanced(number + 1, operation.count)


async def _replace_status(session: Session, obj: Object, namespace: str) -> None:
    try:
        await session.cluster.replace(dict(obj), namespace, "status")
    except APIError as error:
        if error.code != _NOT_FOUND:  # a kind without a status
            raise


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
    existing: dict[tuple[int, int], ObjectReference] = {}
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
                created = await _create_churned(session, template, namespace)
            except APIError as error:
                _log.warning("churn: %s", error, extra=fields(err=error))
                continue
            if operation.mode == "recreate":
                existing[slot] = created
        rounds += 1


async def _create_churned(session: Session, template: ObjectTemplate, namespace: str) -> ObjectReference:
    obj = template.object(0, 1)
    if obj.get("kind") == "Pod":
        await session.ensure_priority_class(obj)
    await session.create(obj, namespace)
    namespaced = await session.cluster.is_namespaced(obj.get("apiVersion", "v1"), obj["kind"])
    return reference_to(obj, namespace if namespaced else "")
