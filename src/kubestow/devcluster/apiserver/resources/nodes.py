"""Nodes and namespaces: the two kinds that others live in."""

from __future__ import annotations

from kubestow.api.names import NameErrors, dns1123_label_errors, label_value_errors, qualified_name_errors
from kubestow.devcluster.apiserver.field_errors import (
    Cause,
    duplicate_value,
    invalid_value,
    invalid_values,
    required_value,
    unsupported_value,
)
from kubestow.devcluster.apiserver.resources.kind import Object, Strategy
from kubestow.devcluster.apiserver.resources.pod_spec import TAINT_EFFECTS

__all__ = ["NOT_READY", "NamespaceStrategy", "NodeStrategy"]

#: Admission puts this on every new node; it goes when the node reports Ready.
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class NodeStrategy(Strategy):
    def default(self, new: Object) -> None:
        status = new["status"]
        if status.get("capacity"):
            allocatable = status.setdefault("allocatable", {})
            for name, amount in status["capacity"].items():
                allocatable.setdefault(name, amount)

    def prepare_create(self, new: Object, now: str) -> None:
        taints = new["spec"].get("taints") or []
        if not any(taint.get("key") == NOT_READY["key"] and taint.get("effect") == "NoSchedule" for taint in taints):
            new["spec"]["taints"] = [*taints, dict(NOT_READY)]

    def validate(self, new: Object) -> list[Cause]:
        causes: list[Cause] = []
        seen: set[tuple[str, str]] = set()
        for index, taint in enumerate(new["spec"].get("taints") or ()):
            path = f"spec.taints[{index}]"
            key, value, effect = (taint.get(field, "") for field in ("key", "value", "effect"))
            causes += invalid_values(f"{path}.key", key, qualified_name_errors(key))
            causes += invalid_values(f"{path}.value", value, label_value_errors(value))
            if not effect:
                causes.append(required_value(f"{path}.effect"))
            elif effect not in TAINT_EFFECTS:
                causes.append(unsupported_value(f"{path}.effect", effect, TAINT_EFFECTS))
            if (key, effect) in seen:
                causes.append(duplicate_value(path, taint))
            seen.add((key, effect))
        for field in ("capacity", "allocatable"):
            for name, amount in (new["status"].get(field) or {}).items():
                if amount.startswith("-"):
                    problem = "must be greater than or equal to 0"
                    causes.append(invalid_value(f"status.{field}.{name}", amount, problem))
        return causes


#: The namespaces that are always there.
_IMMORTAL = ("default", "kube-public", "kube-system")


class NamespaceStrategy(Strategy):
    delete_returns_object = True

    def default(self, new: Object) -> None:
        labels = new["metadata"].setdefault("labels", {})
        if new["metadata"].get("name"):
            labels["kubernetes.io/metadata.name"] = new["metadata"]["name"]

    def prepare_create(self, new: Object, now: str) -> None:
        new["spec"]["finalizers"] = ["kubernetes"]
        new["status"] = {"phase": "Active"}

    def name_errors(self, name: str) -> NameErrors:
        return dns1123_label_errors(name)

    def deletion_problem(self, name: str) -> str:
        return "this namespace may not be deleted" if name in _IMMORTAL else ""
