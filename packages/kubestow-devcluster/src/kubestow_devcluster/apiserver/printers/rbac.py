"""Printers of role bindings."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kubestow_devcluster.apiserver.printers.table import Printer, age_of, columns, name_of
from kubestow_devcluster.apiserver.schema import Object

__all__ = ["PRINTERS"]


def _print_role_binding(obj: Object, now: datetime) -> list[Any]:
    role = obj.get("roleRef", {})
    by_kind: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in obj.get("subjects") or ():
        name = subject.get("name", "")
        prefix = (
            f"{subject['namespace']}/" if subject.get("kind") == "ServiceAccount" and "namespace" in subject else ""
        )
        by_kind.setdefault(subject.get("kind", ""), []).append(prefix + name)
    subjects = [", ".join(by_kind[kind]) for kind in ("User", "Group", "ServiceAccount")]
    return [name_of(obj), f"{role.get('kind', '')}/{role.get('name', '')}", age_of(obj, now), *subjects]


_ROLE_BINDING = Printer(columns("Name", "Role", "Age", "!Users", "!Groups", "!ServiceAccounts"), _print_role_binding)


PRINTERS: dict[str, Printer] = {
    "clusterrolebindings.rbac.authorization.k8s.io": _ROLE_BINDING,
    "rolebindings.rbac.authorization.k8s.io": _ROLE_BINDING,
}
