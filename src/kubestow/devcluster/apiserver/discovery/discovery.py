"""Which groups, versions and resources there are: ``/api`` and ``/apis``, in the plain and in the aggregated form.

Both are made from the catalog. The aggregated form, which clients prefer, has everything in two documents with ETags.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from kubestow.devcluster.apiserver import statuses
from kubestow.devcluster.apiserver.requests import Answer, Request
from kubestow.devcluster.apiserver.resources import Kind, Scheme

__all__ = ["answer"]

Document = dict[str, Any]

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_STATUS_VERBS = ["get", "patch", "update"]
_SUBRESOURCES: dict[str, tuple[str, str, str, list[str]]] = {
    # name -> group, version, kind, verbs
    "binding": ("", "", "Binding", ["create"]),
    "ephemeralcontainers": ("", "", "Pod", _STATUS_VERBS),
    "eviction": ("policy", "v1", "Eviction", ["create"]),
    "finalize": ("", "", "Namespace", ["update"]),
    "log": ("", "", "Pod", ["get"]),
    "resize": ("", "", "Pod", _STATUS_VERBS),
    "scale": ("autoscaling", "v1", "Scale", _STATUS_VERBS),
}


def answer(request: Request, path: str, scheme: Scheme) -> Answer | None:
    """None for a path that is no discovery document. Raises a Failure for one that names an unknown version."""
    parts = path.split("/")[1:]
    if path == "/":
        return Answer.json({"paths": _paths(scheme)})
    if parts[0] == "api" and len(parts) <= 2:
        return _core(request, parts, scheme)
    if parts[0] != "apis" or len(parts) > 3:
        return None
    groups = {group: versions for group, versions in scheme.groups().items() if group}
    if len(parts) == 1:
        if _wants_aggregated(request):
            return _aggregated(
                request, [_group_discovery(group, versions, scheme) for group, versions in groups.items()]
            )
        made = [_group(group, versions) for group, versions in groups.items()]
        return Answer.json({"kind": "APIGroupList", "apiVersion": "v1", "groups": made})
    group = parts[1]
    if group not in groups:
        return None
    if len(parts) == 2:
        return Answer.json({"kind": "APIGroup", "apiVersion": "v1", **_group(group, groups[group])})
    return _resources(group, parts[2], scheme)


def _core(request: Request, parts: list[str], scheme: Scheme) -> Answer:
    if len(parts) == 2:
        return _resources("", parts[1], scheme)
    if _wants_aggregated(request):
        return _aggregated(request, [_group_discovery("", ["v1"], scheme)])
    address = {"clientCIDR": "0.0.0.0/0", "serverAddress": request.host}
    return Answer.json({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [address]})


def _paths(scheme: Scheme) -> list[str]:
    paths = ["/api", "/api/v1", "/apis", "/apis/"]
    for group, versions in sorted(scheme.groups().items()):
        if group:
            paths += [f"/apis/{group}", *(f"/apis/{group}/{version}" for version in versions)]
    return [*paths, "/healthz", "/livez", "/metrics", "/openapi/v3", "/readyz", "/version"]


def _group(group: str, versions: list[str]) -> Document:
    listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": listed, "preferredVersion": listed[0]}


def _resources(group: str, version: str, scheme: Scheme) -> Answer:
    kinds = scheme.served(group, version)
    if not kinds:
        raise statuses.no_such_resource()
    resources = [entry for kind in sorted(kinds, key=lambda kind: kind.plural) for entry in _entries(kind)]
    named = {"groupVersion": kinds[0].api_version, "resources": resources}
    # The oldest document of all never got an apiVersion.
    return Answer.json({"kind": "APIResourceList", **({"apiVersion": "v1"} if group else {}), **named})


def _entries(kind: Kind) -> list[Document]:
    entry: Document = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.name,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    if kind.storage_hash:
        entry["storageVersionHash"] = kind.storage_hash
    entries = [entry]
    for name in _subresources(kind):
        group, version, shown, verbs = _SUBRESOURCES.get(name, ("", "", kind.name, _STATUS_VERBS))
        below: Document = {"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced}
        if group:
            below |= {"group": group, "version": version}
        entries.append(below | {"kind": shown, "verbs": verbs})
    return entries


def _subresources(kind: Kind) -> list[str]:
    return sorted([*kind.subresources, *(["status"] if kind.status else []), *(["scale"] if kind.scale else [])])


def _wants_aggregated(request: Request) -> bool:
    """Whether a client knows the aggregated form. Raises a 406 Failure for one that wants only older ones."""
    clauses = [clause.strip() for clause in request.accept.split(",")]
    if any("as=APIGroupDiscoveryList" in clause and "v=v2;" in f"{clause};" for clause in clauses):
        return True
    _ = request.representation
    return False


def _aggregated(request: Request, items: list[Document]) -> Answer:
    made = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}
    body = msgspec.json.encode(made) + b"\n"
    etag = f'"{hashlib.sha512(body).hexdigest().upper()}"'
    headers = {"Etag": etag, "Vary": "Accept", "Cache-Control": "public"}
    if request.if_none_match == etag:
        return Answer(304, b"", "", headers)
    return Answer(200, body, _AGGREGATED, headers)


def _group_discovery(group: str, versions: list[str], scheme: Scheme) -> Document:
    listed = [
        {
            "version": version,
            "resources": [
                _resource_discovery(kind)
                for kind in sorted(scheme.served(group, version), key=lambda kind: kind.plural)
            ],
            "freshness": "Current",
        }
        for version in versions
    ]
    return {"metadata": {"name": group} if group else {}, "versions": listed}


def _resource_discovery(kind: Kind) -> Document:
    entry: Document = {
        "resource": kind.plural,
        "responseKind": {"group": "", "version": "", "kind": kind.name},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    below = []
    for name in _subresources(kind):
        group, version, shown, verbs = _SUBRESOURCES.get(name, ("", "", kind.name, _STATUS_VERBS))
        response = {"group": group, "version": version, "kind": shown}
        below.append({"subresource": name, "responseKind": response, "verbs": verbs})
    if below:
        entry["subresources"] = below
    return entry
