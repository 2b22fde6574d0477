"""The strategy of nodes."""

from __future__ import annotations

from kubestow.api.formats.names import label_value_errors, qualified_name_errors
from kubestow_devcluster.apiserver.field_errors import (
    FieldError,
    duplicate_value,
    invalid_value,
    invalid_values,
    required_value,
    unsupported_value,
)
from kubestow_devcluster.apiserver.resources.strategies.pod_spec_validation import TAINT_EFFECTS
from kubestow_devcluster.apiserver.resources.strategy import RESTStrategy
from kubestow_devcluster.apiserver.schema import Object

__all__ = ["NodeStrategy"]

#: The taint of every new node, which is removed when the node becomes Ready.
_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class NodeStrategy(RESTStrategy):
    def set_defaults(self, new: Object) -> None:
        status = new["status"]
        if status.get("capacity"):
            allocatable = status.setdefault("allocatable", {})
            for name, amount in status["capacity"].items():
                allocatable.setdefault(name, amount)

    def prepare_for_create(self, new: Object, now: str) -> None:
        taints = new["spec"].get("taints") or []
        if not any(taint.get("key") == _NOT_READY["key"] and taint.get("effect") == "NoSchedule" for taint in taints):
            new["spec"]["taints"] = [*taints, dict(_NOT_READY)]

    def validate(self, new: Object) -> list[FieldError]:
        errors = _taint_errors(new)
        for field in ("capacity", "allocatable"):
            for name, amount in (new["status"].get(field) or {}).items():
                if amount.startswith("-"):
                    problem = "must be greater than or equal to 0"
                    errors.append(invalid_value(f"status.{field}.{name}", amount, problem))
        return errors

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return _taint_errors(new)


def _taint_errors(node: Object) -> list[FieldError]:
    """The errors in the taints of a node, under the path that kube-apiserver gives them, which is not theirs."""
    errors: list[FieldError] = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(node["spec"].get("taints") or ()):
        path = f"metadata.taints[{index}]"
        key, value, effect = (taint.get(field, "") for field in ("key", "value", "effect"))
        errors += invalid_values(f"{path}.key", key, qualified_name_errors(key))
        errors += invalid_values(f"{path}.value", value, label_value_errors(value))
        if not effect:
            errors.append(required_value(f"{path}.effect"))
        elif effect not in TAINT_EFFECTS:
            errors.append(unsupported_value(f"{path}.effect", effect, TAINT_EFFECTS))
        if (key, effect) in seen:
            errors.append(duplicate_value(path, taint))
        seen.add((key, effect))
    return errors
