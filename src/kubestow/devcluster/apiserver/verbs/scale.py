"""The scale subresource: replicas of a workload, whatever its kind, as an autoscaling/v1 Scale."""

from __future__ import annotations

from typing import Any

import msgspec

from kubestow.devcluster.apiserver import field_errors, statuses
from kubestow.devcluster.apiserver.printing import selector_text
from kubestow.devcluster.apiserver.registry import patches
from kubestow.devcluster.apiserver.requests import Answer
from kubestow.devcluster.apiserver.resources import Kind, Object
from kubestow.devcluster.apiserver.resources.kind import value_at
from kubestow.devcluster.apiserver.serialization import negotiation
from kubestow.devcluster.apiserver.verbs.call import Call

__all__ = ["get_scale", "patch_scale", "replace_scale"]


def get_scale(call: Call) -> Answer:
    target = call.target
    whole = call.kind.decode(call.registry.get(call.kind, target.namespace, target.name))
    return Answer.json(_scale(call.kind, whole))


def replace_scale(call: Call) -> Answer:
    scale = negotiation.decode(call.request.body, call.request.content_type, expected="Scale")
    return _set(call, lambda _: scale)


def patch_scale(call: Call) -> Answer:
    try:
        content = msgspec.json.decode(call.request.body)
    except msgspec.DecodeError as error:
        raise statuses.bad_request(f"error decoding patch: {error}") from None
    is_json_patch = "json-patch" in call.request.content_type
    return _set(
        call, lambda old: patches.json_patch(old, content) if is_json_patch else patches.merge_patch(old, content)
    )


def _set(call: Call, change: Any) -> Answer:
    def rescale(old: Object) -> Object:
        wanted = change(_scale(call.kind, old))
        metadata, replicas = wanted.get("metadata") or {}, (wanted.get("spec") or {}).get("replicas", 0)
        if type(replicas) is not int:
            problem = "json: cannot unmarshal string into Go struct field ScaleSpec.spec.replicas of type int32"
            raise statuses.bad_request(f'Scale in version "v1" cannot be handled as a Scale: {problem}')
        if replicas < 0:
            cause = field_errors.invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
            raise statuses.invalid("Scale", call.target.name, [cause], group="autoscaling")
        new = _replaced(old, _paths(call.kind)[0].split("."), replicas)
        new["metadata"] = dict(old["metadata"])
        new["metadata"]["resourceVersion"] = metadata.get("resourceVersion", "")
        return new

    target = call.target
    stored = call.registry.update(call.kind, target.namespace, target.name, rescale, call.write, subresource="scale")
    return Answer.json(_scale(call.kind, call.kind.decode(stored)))


def _scale(kind: Kind, whole: Object) -> Object:
    wanted, running, selector = _paths(kind)
    replicas = value_at(whole, wanted)
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status = {"replicas": value_at(whole, running) or 0}
    if text := value_at(whole, selector) if kind.custom is not None else _selector(kind, whole["spec"].get("selector")):
        status["selector"] = text
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {field: whole["metadata"][field] for field in kept if field in whole["metadata"]},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def _paths(kind: Kind) -> tuple[str, str, str]:
    """Where replicas and selector of this kind are."""
    assert kind.scale is not None
    return kind.scale


def _replaced(whole: Any, steps: list[str], value: int) -> Object:
    """A copy of ``whole`` with another value at this path."""
    below = value if len(steps) == 1 else _replaced(whole.get(steps[0]), steps[1:], value)
    return {**(whole or {}), steps[0]: below}


def _selector(kind: Kind, selector: Any) -> str:
    return _plain_selector(selector) if kind.name == "ReplicationController" else selector_text(selector)


def _plain_selector(selector: dict[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((selector or {}).items()))
