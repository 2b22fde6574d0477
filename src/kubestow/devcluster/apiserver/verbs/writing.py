"""Create, replace, patch and delete over the wire: bodies in, objects or Statuses out."""

from __future__ import annotations

from typing import Any

import msgspec

from kubestow.devcluster.apiserver import field_errors, statuses
from kubestow.devcluster.apiserver import field_management as ownership
from kubestow.devcluster.apiserver.registry import patches
from kubestow.devcluster.apiserver.registry.deletion import PROPAGATION_FINALIZERS, DeleteOptions
from kubestow.devcluster.apiserver.requests import Answer
from kubestow.devcluster.apiserver.resources import Object
from kubestow.devcluster.apiserver.serialization import negotiation
from kubestow.devcluster.apiserver.verbs.call import Call

__all__ = ["create", "delete", "delete_collection", "deletion_of", "finalize", "patch", "replace"]

_PATCH_TYPES = {
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
}


def create(call: Call) -> Answer:
    new, headers = call.body()
    check_namespace(call, new)
    stored = call.registry.create(call.kind, call.target.namespace, new, call.write)
    return call.view.one(stored, 201, headers=headers)


def check_namespace(call: Call, new: Object) -> None:
    """Body and URL must agree on the namespace."""
    said = new["metadata"].get("namespace", "")
    if said and call.kind.namespaced and said != call.target.namespace:
        raise statuses.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def replace(call: Call) -> Answer:
    new, headers = call.body()
    check_namespace(call, new)
    target, registry, kind = call.target, call.registry, call.kind
    name = new["metadata"].setdefault("name", target.name)
    if name != target.name:
        problem = f"the name of the object ({name}) does not match the name on the URL ({target.name})"
        raise statuses.bad_request(problem)
    existing = call.collection.get(kind.key(target.namespace, target.name))
    if existing is None and kind.strategy.create_on_update and not target.subresource:
        stored = registry.create(kind, target.namespace, new, call.write)
        return call.view.one(stored, 201, headers=headers)

    def change(old: Object) -> Object:
        wanted, found = new["metadata"].get("uid"), old["metadata"]["uid"]
        if wanted and wanted != found:
            key = kind.key(target.namespace, target.name)
            raise statuses.uid_conflict(kind, key, target.name, wanted=wanted, found=found)
        if kind.namespaced:
            new["metadata"]["namespace"] = target.namespace
        return new

    stored = registry.update(kind, target.namespace, target.name, change, call.write, subresource=target.subresource)
    return call.view.one(stored, headers=headers)


def patch(call: Call) -> Answer:
    patch_type = call.request.content_type.partition(";")[0].strip()
    if patch_type not in _PATCH_TYPES or (patch_type.startswith("application/strategic") and not call.kind.model):
        raise statuses.unsupported_media_type("415: Unsupported Media Type", with_details=True)
    if patch_type == "application/apply-patch+yaml":
        return _apply(call)
    content = _patch_body(call)
    headers: dict[str, str] = {}

    def change(old: Object) -> Object:
        whole = {"kind": call.kind.name, "apiVersion": call.kind.api_version, **old}
        if patch_type == "application/json-patch+json":
            patched = patches.json_patch(whole, content)
        elif patch_type == "application/merge-patch+json":
            patched = patches.merge_patch(whole, content)
        else:
            patched = patches.strategic_merge(whole, content, call.kind.struct)
        new, warnings = call.read(patched)
        headers.update(warnings)
        return new

    target = call.target
    stored = call.registry.update(
        call.kind, target.namespace, target.name, change, call.write, subresource=target.subresource
    )
    return call.view.one(stored, headers=headers)


def _patch_body(call: Call) -> Any:
    try:
        content = msgspec.json.decode(call.request.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise statuses.bad_request(f"error decoding patch: {error}") from None
    if not isinstance(content, (dict, list)):
        raise statuses.bad_request("error decoding patch: the body is neither an object nor a list")
    if isinstance(content, list) and "json-patch" not in call.request.content_type:
        raise statuses.bad_request(
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
        )
    return content


def _apply(call: Call) -> Answer:
    if not call.request.query.get("fieldManager"):
        cause = field_errors.required_value("fieldManager", "is required for apply patch")
        raise statuses.invalid("PatchOptions", "", [cause], group="meta.k8s.io")
    kind, target, registry = call.kind, call.target, call.registry
    config = negotiation.decode(call.request.body, "application/apply-patch+yaml", expected=kind.name)
    if "kind" not in config or "apiVersion" not in config:
        missing = "Kind" if "kind" not in config else "apiVersion"
        shown = msgspec.json.encode(config).decode()
        raise statuses.bad_request(f"failed to decode apply patch: Object '{missing}' is missing in '{shown}'")
    _, headers = call.read(config)
    config = {field: value for field, value in config.items() if field not in ("kind", "apiVersion")}
    metadata = config["metadata"] = config.get("metadata") or {}
    if "managedFields" in metadata:
        raise statuses.bad_request("metadata.managedFields must be nil")
    check_namespace(call, config)
    if metadata.setdefault("name", target.name) != target.name:
        problem = f"the name of the object ({metadata['name']}) does not match the name on the URL ({target.name})"
        raise statuses.bad_request(problem)
    if target.subresource != "status" and kind.status:
        config.pop("status", None)
    manager = ownership.Manager(call.request.manager, "Apply", kind.api_version, target.subresource)
    force, now = call.request.flag("force"), registry.now()

    def applied(live: Object | None) -> Object:
        made = ownership.apply(live, config, kind.struct, manager, force=force, time=now)
        managed = made["metadata"].get("managedFields")
        new, _ = call.read(made)
        if managed:
            new["metadata"]["managedFields"] = managed
        return new

    key = kind.key(target.namespace, target.name)
    if call.collection.get(key) is None:
        if target.subresource:
            raise statuses.not_found(kind, target.name)
        stored = registry.create_applied(kind, target.namespace, applied(None), call.write)
        return call.view.one(stored, 201, headers=headers)
    stored = registry.update(
        kind, target.namespace, target.name, applied, call.write, subresource=target.subresource, owned=True
    )
    return call.view.one(stored, headers=headers)


def delete(call: Call) -> Answer:
    target, kind = call.target, call.kind
    deletion, write = deletion_of(call), call.write
    stored, gone = call.registry.delete(kind, target.namespace, target.name, deletion, write)
    if kind.strategy.delete_returns_object or not gone:
        return call.view.one(stored)
    about = statuses.details(kind, target.name)
    about["uid"] = kind.decode(stored)["metadata"]["uid"]
    return Answer(200, statuses.success(details=about))


def delete_collection(call: Call) -> Answer:
    deletion, write = deletion_of(call), call.write
    version = call.registry.store.resource_version
    chosen = call.selector().select(call.collection.snapshot(call.prefix))
    for stored in chosen:
        call.registry.delete(call.kind, stored.namespace, stored.name, deletion, write)
    return call.view.many(chosen, {"resourceVersion": str(version)})


def deletion_of(call: Call) -> DeleteOptions:
    """The options of a DELETE, from its body or its query. Raises a 400 Failure."""
    query = call.request.query
    options: Object = {}
    if call.request.body.strip():
        options = negotiation.decode(call.request.body, call.request.content_type, expected="DeleteOptions")
    return read_deletion(
        options,
        grace_period=call.request.number("gracePeriodSeconds"),
        propagation=query.get("propagationPolicy", ""),
    )


def read_deletion(options: Object, *, grace_period: int | None = None, propagation: str = "") -> DeleteOptions:
    """DeleteOptions as a Deletion; what the query says is used where the body says nothing. Raises a Failure."""
    preconditions = options.get("preconditions") or {}
    asked = options.get("gracePeriodSeconds", grace_period)
    if not isinstance(preconditions, dict) or (asked is not None and type(asked) is not int):
        raise statuses.bad_request("DeleteOptions: a field has the wrong type")
    if asked is not None and asked < 0:
        # A negative period means: the shortest there is.
        asked = 1
    return DeleteOptions(
        asked,
        preconditions.get("uid") or "",
        preconditions.get("resourceVersion") or "",
        _propagation(options, propagation),
    )


def _propagation(options: Object, from_query: str) -> str:
    """The propagation policy; ``orphanDependents`` is its older form. Raises a 422 Failure."""
    policy, orphan = options.get("propagationPolicy") or from_query, options.get("orphanDependents")
    if orphan is not None:
        policy = policy or ("Orphan" if orphan else "Background")
    if policy and policy not in PROPAGATION_FINALIZERS:
        cause = field_errors.unsupported_value("propagationPolicy", policy, (*PROPAGATION_FINALIZERS, "nil"))
        raise statuses.invalid("DeleteOptions", "", [cause], group="meta.k8s.io")
    return str(policy)


def finalize(call: Call) -> Answer:
    """``PUT namespaces/NAME/finalize``: the only way ``spec.finalizers`` of a namespace change."""
    return replace(call)
