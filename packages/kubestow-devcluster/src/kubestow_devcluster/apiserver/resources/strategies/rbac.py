"""The strategies of roles and role bindings, which RBAC enforces."""

from __future__ import annotations

from kubestow.api.formats.names import NameErrors, path_segment_name_errors
from kubestow_devcluster.apiserver.resources.strategy import RESTStrategy
from kubestow_devcluster.apiserver.schema import Object

__all__ = ["RoleBindingStrategy", "RoleStrategy"]

_API_GROUP = "rbac.authorization.k8s.io"


class RoleStrategy(RESTStrategy):
    def validate_name(self, name: str) -> NameErrors:
        return path_segment_name_errors(name)


class RoleBindingStrategy(RoleStrategy):
    def set_defaults(self, new: Object) -> None:
        if "roleRef" in new:
            new["roleRef"].setdefault("apiGroup", _API_GROUP)
        for subject in new.get("subjects") or ():
            subject.setdefault("apiGroup", "" if subject.get("kind") == "ServiceAccount" else _API_GROUP)
