"""The known differences between the recordings and the responses here, with their reasons; docs/apiserver.md has them.

All other exchanges are compared: status, normalized body, and the headers that clients act on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from devcluster_tests.wire.recordings import Exchange, normalized

#: Headers that clients act on.
HEADERS = ("Warning", "Retry-After", "Location")

#: Reason -> the exchanges that differ: a whole recording, a range of its numbers (``list-watch 40-42``), or one.
DIFFERENCES: dict[str, tuple[str, ...]] = {
    "the message ends in a diff of Go structs, which is omitted": ("pods-create 29",),
    "pods get no token volume": (
        "pods-create-serviceaccount 1",
        "pods-create-serviceaccount 3-4",
    ),
    "the version names kubestow instead of a Go version": ("kubectl-version", "server 1", "server 12"),
    "health checks and metrics are those of the components that exist here": (
        "server 6-7",
        "server 9-10",
    ),
    "kinds that are not served are a 404": (
        "discovery 8-9",
        "discovery 18-20",
        "discovery 23-24",
        "discovery 33-34",
        "discovery 47-48",
    ),
    "the OpenAPI index has no Last-Modified header": (
        "kubectl-apply-update 1",
        "kubectl-create 1",
        "kubectl-explain-recursive 1",
    ),
    "the watch history is not compacted between the requests of a recording: versions that had expired have not": (
        "list-watch 40-42",
    ),
    "the message is that of Go's JSON decoder": ("list-watch 9",),
    "the message contains the current resourceVersion": ("list-watch 10",),
    "the watched objects were written by requests that were not recorded": ("list-watch 36",),
    "the recording has only a part of the response or of the request": ("errors 20",),
    "the size limit and the tokens belong to the HTTP layer, which has its own tests": (
        "errors 1",
        "errors 21",
        "errors 23",
    ),
}

#: Groups, resources and paths of kube-apiserver that are not served.
UNSERVED_GROUPS = (
    "admissionregistration.k8s.io",
    "apiregistration.k8s.io",
    "autoscaling",
    "certificates.k8s.io",
    "flowcontrol.apiserver.k8s.io",
)
UNSERVED = (
    "componentstatuses",
    "ingressclasses",
    "ipaddresses",
    "nodes/proxy",
    "pods/attach",
    "pods/exec",
    "pods/portforward",
    "pods/proxy",
    "resourcepoolstatusrequests",
    "servicecidrs",
    "services/proxy",
)
#: Groups that are served in addition.
ADDED_GROUPS = ("scheduling.x-k8s.io", "scheduling.volcano.sh", "scheduling.k8s.io/v1alpha2")


def difference(exchange: Exchange) -> str:
    """Why an exchange is not compared; empty for those that are."""
    for reason, places in DIFFERENCES.items():
        if any(_is_in(exchange, place) for place in places):
            return reason
    return ""


def _is_in(exchange: Exchange, place: str) -> bool:
    scenario, _, numbers = place.partition(" ")
    first, _, last = numbers.partition("-")
    if exchange.scenario != scenario:
        return False
    return not numbers or int(first) <= exchange.number <= int(last or first)


def differences_table() -> str:
    """The differences as the documentation has them."""
    rows = [f"| {', '.join(places)} | {reason} |" for reason, places in DIFFERENCES.items()]
    return "\n".join(["| Recording | Difference and reason |", "|---|---|", *rows])


def discovery_problems(recorded: Any, actual: Any) -> list[str] | None:
    """The problems of a discovery document apart from kinds that are not served; None for any other document."""
    expected, found = dict(_entries(recorded)), dict(_entries(actual))
    if not expected:
        return None
    problems = [f"{name} is missing" for name in expected.keys() - found.keys() if not _is_unserved(name)]
    problems += [f"{name} is unexpected" for name in found.keys() - expected.keys() if not _is_added(name)]
    problems += [
        f"{name}: {found[name]} for {expected[name]}"
        for name in expected
        if name in found and normalized(found[name]) != normalized(expected[name])
    ]
    if [name for name in expected if name in found] != [name for name in found if name in expected]:
        problems.append(f"the order is {list(found)}, not {list(expected)}")
    return problems


def _entries(document: Any) -> Iterator[tuple[str, Any]]:
    """The groups, versions, resources or paths of a discovery document, each with its entry."""
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind == "APIGroupDiscoveryList":
        for group in document["items"]:
            for version in group["versions"]:
                prefix = f"{group['metadata'].get('name', '')}/{version['version']}"
                for resource in version["resources"]:
                    yield from _resource_entries(prefix, resource)
    elif kind == "APIGroupList":
        for group in document["groups"]:
            yield group["name"] + "/", group["preferredVersion"]
    elif kind == "APIGroup":
        for version in document["versions"]:
            yield version["groupVersion"], version
    elif kind == "APIResourceList":
        version = document["groupVersion"]
        for resource in document["resources"]:
            yield f"{version if '/' in version else f'/{version}'}/{resource['name']}", resource
    elif isinstance(document, dict) and isinstance(document.get("paths"), dict):
        for path, item in document["paths"].items():
            yield path.removeprefix("apis/"), item
    elif isinstance(document, dict) and isinstance(document.get("paths"), list):
        for path in document["paths"]:
            yield path.removeprefix("/apis/") or path, None


def _resource_entries(prefix: str, resource: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    subresources = resource.get("subresources", ())
    yield f"{prefix}/{resource['resource']}", {key: item for key, item in resource.items() if key != "subresources"}
    for one in subresources:
        yield f"{prefix}/{resource['resource']}/{one['subresource']}", one


def _is_unserved(name: str) -> bool:
    group, _, rest = name.partition("/")
    resource = rest.partition("/")[2] if "/" in rest else ""
    is_document = name.startswith("openid/") or (not rest.rpartition("/")[2].startswith("v") and resource == "")
    return group in UNSERVED_GROUPS or resource in UNSERVED or resource.partition("/")[0] in UNSERVED or is_document


def _is_added(name: str) -> bool:
    return name.startswith(ADDED_GROUPS)
