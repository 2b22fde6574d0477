"""Writes the default roles and bindings of RBAC that the API server creates.

    python -m tools.schema.roles TESTDATA DIRECTORY

It writes ``default_roles.json`` in DIRECTORY. TESTDATA is ``plugin/pkg/auth/authorizer/rbac/bootstrappolicy/testdata``
in Kubernetes' sources (Apache-2.0), of the minor version that is served: YAML lists of all roles that kube-apiserver
creates with every feature gate on. The file has those for users, for kube-scheduler and for extension servers, with
what the server needs of each; the others are for components that do not exist here.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

#: The file of each resource, and the objects that are created.
_SELECTED = {
    "clusterroles": (
        "cluster-roles-featuregates.yaml",
        (
            "admin",
            "cluster-admin",
            "edit",
            "system:aggregate-to-admin",
            "system:aggregate-to-edit",
            "system:aggregate-to-view",
            "system:auth-delegator",
            "system:basic-user",
            "system:discovery",
            "system:kube-scheduler",
            "system:monitoring",
            "system:public-info-viewer",
            "system:volume-scheduler",
            "view",
        ),
    ),
    "clusterrolebindings": (
        "cluster-role-bindings.yaml",
        (
            "cluster-admin",
            "system:basic-user",
            "system:discovery",
            "system:kube-scheduler",
            "system:monitoring",
            "system:public-info-viewer",
            "system:volume-scheduler",
        ),
    ),
    "roles": (
        "namespace-roles.yaml",
        ("extension-apiserver-authentication-reader", "system::leader-locking-kube-scheduler"),
    ),
    "rolebindings": (
        "namespace-role-bindings.yaml",
        ("system::extension-apiserver-authentication-reader", "system::leader-locking-kube-scheduler"),
    ),
}
_FIELDS = ("metadata", "aggregationRule", "rules", "roleRef", "subjects")
_METADATA = ("name", "namespace", "labels")
_ABOUT = {
    "source": "kubernetes 1.36, plugin/pkg/auth/authorizer/rbac/bootstrappolicy/testdata",
    "license": "Apache-2.0",
    "copyright": "The Kubernetes Authors",
    "generator": "tools/schema/roles.py",
}


def main(testdata: Path, directory: Path) -> None:
    """Write the file. Raises SystemExit if an object is missing in ``testdata``."""
    blocks = [f'"about": {json.dumps(_ABOUT, indent=1)}']
    for resource, (file, names) in _SELECTED.items():
        listed = yaml.safe_load((testdata / file).read_text(encoding="utf-8"))["items"]
        found = {one["metadata"]["name"]: one for one in listed}
        if missing := [name for name in names if name not in found]:
            raise SystemExit(f"{file} has no {', '.join(missing)}")
        lines = ",\n".join(json.dumps(_reduced(found[name])) for name in names)
        blocks.append(f'"{resource}": [\n{lines}\n]')
    (directory / "default_roles.json").write_text("{\n" + ",\n".join(blocks) + "\n}\n", encoding="utf-8")


def _reduced(obj: dict[str, Any]) -> dict[str, Any]:
    """The fields that the server creates the object with."""
    metadata = {field: obj["metadata"][field] for field in _METADATA if field in obj["metadata"]}
    return {"metadata": metadata} | {field: obj[field] for field in _FIELDS[1:] if obj.get(field)}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
