"""Paths that are not resources: discovery of groups, versions and resources; the version, health and metrics endpoints.

Each document of discovery exists in the unaggregated form (APIGroupList, APIResourceList), in JSON, YAML or protobuf,
and, where clients accept it, in the aggregated one (APIGroupDiscoveryList) in JSON, which has all groups in two
documents with ETags.
"""

from __future__ import annotations

import hashlib
from collections import Counter

import msgspec

from kubestow.http.messages import HTTPResponse
from kubestow.rules.minors import Minor
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.endpoints.request_scope import converted
from kubestow_devcluster.apiserver.endpoints.requests import Request, RequestInfo
from kubestow_devcluster.apiserver.kinds.kind import Kind, Scheme
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.serialization import protobuf
from kubestow_devcluster.apiserver.serialization.media_types import PROTOBUF, negotiate_output_media_type
from kubestow_devcluster.apiserver.storage.store import Store

_AGGREGATED_MEDIA_TYPE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_OBJECT_VERBS = ["get", "patch", "update"]
#: Subresource -> group, version and kind of its objects, and verbs; others have the kind of their resource.
_SUBRESOURCES: dict[str, tuple[str, str, str, list[str]]] = {
    "binding": ("", "", "Binding", ["create"]),
    "ephemeralcontainers": ("", "", "Pod", _OBJECT_VERBS),
    "eviction": ("policy", "v1", "Eviction", ["create"]),
    "token": ("authentication.k8s.io", "v1", "TokenRequest", ["create"]),
    "finalize": ("", "", "Namespace", ["update"]),
    "log": ("", "", "Pod", ["get"]),
    "resize": ("", "", "Pod", _OBJECT_VERBS),
    "scale": ("autoscaling", "v1", "Scale", _OBJECT_VERBS),
}


def serve_discovery(request: Request, path: str, scheme: Scheme) -> HTTPResponse | None:
    """The discovery document at ``path``; None for any other path.

    Raises a 404 StatusError for an unknown version, a 406 one for a client that accepts no form of the document.
    """
    parts = path.split("/")[1:]
    if path == "/":
        return HTTPResponse.json({"paths": _paths(scheme)})
    if parts[0] == "api" and len(parts) <= 2:
        if len(parts) == 2:
            return _resource_list(request, "", parts[1], scheme)
        if _accepts_aggregated(request):
            return _aggregated(request, [_group_discovery("", ["v1"], scheme)])
        address = {"clientCIDR": "0.0.0.0/0", "serverAddress": request.host}
        return _document(request, {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [address]})
    if parts[0] != "apis" or len(parts) > 3:
        return None
    groups = {group: versions for group, versions in scheme.groups().items() if group}
    if len(parts) == 1:
        if _accepts_aggregated(request):
            return _aggregated(request, [_group_discovery(group, groups[group], scheme) for group in groups])
        documents = [_api_group(group, versions) for group, versions in groups.items()]
        return _document(request, {"kind": "APIGroupList", "apiVersion": "v1", "groups": documents})
    group = parts[1]
    if group not in groups:
        return None
    if len(parts) == 2:
        return _document(request, {"kind": "APIGroup", "apiVersion": "v1", **_api_group(group, groups[group])})
    return _resource_list(request, group, parts[2], scheme)


def _document(request: Request, document: Object) -> HTTPResponse:
    """An unaggregated document in the media type that the client prefers. Raises a 406 StatusError."""
    media_type = negotiate_output_media_type(request.headers.accept, has_protobuf=True).media_type
    if media_type == PROTOBUF:
        # The envelope names the version where JSON does not.
        return HTTPResponse(200, protobuf.encode({"apiVersion": "v1", **document}), PROTOBUF)
    return converted(HTTPResponse.json(document), media_type)


def _paths(scheme: Scheme) -> list[str]:
    paths = ["/api", "/api/v1", "/apis", "/apis/"]
    for group, versions in sorted(scheme.groups().items()):
        if group:
            paths += [f"/apis/{group}", *(f"/apis/{group}/{version}" for version in versions)]
    return [*paths, "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]


# Unaggregated discovery


def _api_group(group: str, versions: list[str]) -> Object:
    group_versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": group_versions, "preferredVersion": group_versions[0]}


def _resource_list(request: Request, group: str, version: str, scheme: Scheme) -> HTTPResponse:
    kinds = scheme.served(group, version)
    if not kinds:
        raise statuses.no_such_resource()
    resources = [entry for kind in sorted(kinds, key=lambda kind: kind.names.plural) for entry in _api_resources(kind)]
    # The APIResourceList of the core group has no apiVersion.
    type_meta = {"kind": "APIResourceList", **({"apiVersion": "v1"} if group else {})}
    return _document(request, {**type_meta, "groupVersion": kinds[0].api_version, "resources": resources})


def _api_resources(kind: Kind) -> list[Object]:
    resource: Object = {
        "name": kind.names.plural,
        "singularName": kind.names.singular,
        "namespaced": kind.namespaced,
        "kind": kind.name,
        "verbs": list(kind.rest.verbs),
        **_short_names_and_categories(kind),
    }
    if kind.rest.storage_version_hash:
        resource["storageVersionHash"] = kind.rest.storage_version_hash
    resources = [resource]
    for name in _subresources(kind):
        group, version, object_kind, verbs = _SUBRESOURCES.get(name, ("", "", kind.name, _OBJECT_VERBS))
        subresource: Object = {"name": f"{kind.names.plural}/{name}", "singularName": "", "namespaced": kind.namespaced}
        if group:
            subresource |= {"group": group, "version": version}
        resources.append(subresource | {"kind": object_kind, "verbs": verbs})
    return resources


def _short_names_and_categories(kind: Kind) -> Object:
    found = {"shortNames": list(kind.names.short_names), "categories": list(kind.names.categories)}
    return {field: names for field, names in found.items() if names}


def _subresources(kind: Kind) -> list[str]:
    status, scale, others = kind.subresources
    return sorted([*others, *(["status"] if status else []), *(["scale"] if scale else [])])


# Aggregated discovery


def _accepts_aggregated(request: Request) -> bool:
    clauses = [clause.strip() for clause in request.headers.accept.split(",")]
    return any("as=APIGroupDiscoveryList" in clause and "v=v2;" in f"{clause};" for clause in clauses)


def _aggregated(request: Request, groups: list[Object]) -> HTTPResponse:
    type_meta = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2"}
    body = msgspec.json.encode({**type_meta, "metadata": {}, "items": groups}) + b"\n"
    etag = f'"{hashlib.sha512(body).hexdigest().upper()}"'
    headers = {"Etag": etag, "Vary": "Accept", "Cache-Control": "public"}
    if request.headers.if_none_match == etag:
        return HTTPResponse(304, b"", "", headers)
    return HTTPResponse(200, body, _AGGREGATED_MEDIA_TYPE, headers)


def _group_discovery(group: str, versions: list[str], scheme: Scheme) -> Object:
    return {
        "metadata": {"name": group} if group else {},
        "versions": [_version_discovery(version, scheme.served(group, version)) for version in versions],
    }


def _version_discovery(version: str, kinds: list[Kind]) -> Object:
    resources = [_resource_discovery(kind) for kind in sorted(kinds, key=lambda kind: kind.names.plural)]
    return {"version": version, "resources": resources, "freshness": "Current"}


def _resource_discovery(kind: Kind) -> Object:
    resource: Object = {
        "resource": kind.names.plural,
        "responseKind": {"group": "", "version": "", "kind": kind.name},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.names.singular,
        "verbs": list(kind.rest.verbs),
        **_short_names_and_categories(kind),
    }
    subresources = []
    for name in _subresources(kind):
        group, version, object_kind, verbs = _SUBRESOURCES.get(name, ("", "", kind.name, _OBJECT_VERBS))
        response_kind = {"group": group, "version": version, "kind": object_kind}
        subresources.append({"subresource": name, "responseKind": response_kind, "verbs": verbs})
    if subresources:
        resource["subresources"] = subresources
    return resource


#: What ``/version`` reports beside the version's numbers.
_BUILD = {
    "gitCommit": "0" * 40,
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "kubestow",
    "platform": "linux/amd64",
}
#: The checks of what exists here, with the names and in the order of kube-apiserver's. Post-start hooks are complete
#: before the server listens.
_CHECKS = (
    "ping",
    "log",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
)
_BOOTSTRAP_ROLES = "poststarthook/rbac/bootstrap-roles"
#: The checks of one endpoint only, after the others.
_ENDPOINTS = {"healthz": (), "livez": (), "readyz": ("shutdown",)}


class HealthEndpoints:
    """The version and health endpoints of an API server of a ``minor`` version.

    ``has_default_roles``: the default roles of RBAC have been created.
    """

    def __init__(self, minor: Minor, *, has_default_roles: bool) -> None:
        self._version = msgspec.json.format(msgspec.json.encode(minor.version_info | _BUILD), indent=2)
        common = [name for name in _CHECKS if has_default_roles or name != _BOOTSTRAP_ROLES]
        self._checks = {endpoint: (*common, *own) for endpoint, own in _ENDPOINTS.items()}

    def serve(self, request: Request, path: str) -> HTTPResponse | None:
        """``/version``, ``/healthz``, ``/livez`` and ``/readyz`` with their checks; None for any other path."""
        if path == "/version":
            return HTTPResponse(200, self._version)
        endpoint, _, check = path[1:].partition("/")
        checks = self._checks.get(endpoint)
        if checks is None or (check and check not in checks):
            return None
        if "verbose" not in request.query or check:
            return HTTPResponse.text("ok")
        excluded = request.query.get("exclude", "")
        lines = [f"[+]{name} {'excluded: ok' if name == excluded else 'ok'}" for name in checks]
        if excluded and excluded not in checks:
            lines.append(f'warn: some health checks cannot be excluded: no matches for "{excluded}"')
        return HTTPResponse.text("\n".join([*lines, f"{endpoint} check passed", ""]))


_WRITE_METHODS = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class RequestMetrics:
    """Counts resource requests, and exposes the metrics of ``store`` with them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: By verb, group, version, resource, subresource and code: the number of series does not grow with the cluster.
        self._requests: Counter[tuple[str, str, str, str, str, int]] = Counter()

    def count(self, request: Request, info: RequestInfo, code: int) -> None:
        """Count one request for a served kind; a watch is counted when it starts."""
        verb = request.method
        if verb == "GET":
            is_watch = info.watch or (not info.name and request.flag("watch"))
            verb = "WATCH" if is_watch else "GET" if info.name else "LIST"
        elif verb not in _WRITE_METHODS:
            verb = "OTHER"
        # A 404 can have any subresource; only existing ones have their own series.
        subresource = "" if code == 404 else info.subresource
        self._requests[verb, info.group, info.version, info.resource, subresource, code] += 1

    def exposition(self) -> str:
        """The metrics in Prometheus' text format."""
        store = self._store
        lines = [
            "# HELP apiserver_request_total Counter of apiserver requests by verb, group, version, resource and code.",
            "# TYPE apiserver_request_total counter",
            *(
                f'apiserver_request_total{{code="{code}",group="{group}",resource="{resource}",'
                f'subresource="{subresource}",verb="{verb}",version="{version}"}} {count}'
                for (verb, group, version, resource, subresource, code), count in sorted(self._requests.items())
            ),
            "# HELP apiserver_storage_objects Number of stored objects at the time of last check split by kind.",
            "# TYPE apiserver_storage_objects gauge",
            *(f'apiserver_storage_objects{{resource="{name}"}} {n}' for name, n in sorted(store.counts().items())),
            "# HELP apiserver_current_resource_version The resource version of the last write.",
            "# TYPE apiserver_current_resource_version counter",
            f"apiserver_current_resource_version {store.resource_version}",
        ]
        return "\n".join(lines) + "\n"
