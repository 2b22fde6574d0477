"""What is known to differ between the recordings and our answers, and why: data, and the same table as in the docs.

Everything not named here is compared: status, body but for what differs from run to run, and the headers that matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.devcluster.wire import Exchange, alike

__all__ = ["DIFFERENCES", "HEADERS", "discovery_problems", "reason", "table"]

#: Headers that clients act on.
HEADERS = ("Warning", "Retry-After", "Location")

#: Why -> the exchanges it is the reason for: a whole recording, some of its numbers (``list-watch 40-42``), or one.
DIFFERENCES: dict[str, tuple[str, ...]] = {
    "everybody may do everything: no 403 for who asks, and reviews say yes": ("errors 22", "kubectl-auth-can-i 4"),
    "the message ends in a diff of Go structs, of which there are none": ("pods-create 29",),
    "answers are never in protobuf": ("pods-create 26",),
    "no service account is looked for, and pods get no token volume": (
        "pods-create-serviceaccount 1",
        "pods-create-serviceaccount 3-4",
    ),
    "the version says that this is kubestow, not a Go program": ("kubectl-version", "server 1", "server 12"),
    "there are no etcd, informers and hooks of which health checks and metrics could speak": (
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
    "the index of OpenAPI documents has no date: a custom resource defined in the same second would be missed": (
        "kubectl-apply-update 1",
        "kubectl-create 1",
        "kubectl-explain-recursive 1",
    ),
    "history is bounded by events and not compacted: versions that were too old are not": ("list-watch 40-42",),
    "the words of Go's JSON decoder": ("list-watch 9",),
    "names the current version in its text": ("list-watch 10",),
    "what is watched was written by requests that were not recorded": ("list-watch 36",),
    "the recording keeps a part of the answer or of the request": ("errors 20",),
    "the size limit and the tokens are the HTTP layer's, tested there": ("errors 21", "errors 23"),
}

#: What kube-apiserver has and this server does not: groups, resources, and paths outside the API.
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
    "serviceaccounts/token",
    "services/proxy",
)
#: What this server has besides.
ADDED_GROUPS = ("scheduling.x-k8s.io", "scheduling.volcano.sh", "scheduling.k8s.io/v1alpha2")


def reason(exchange: Exchange) -> str:
    """Why this exchange is not compared; empty for all that are."""
    if exchange.status in (401, 403) and exchange.user != "admin":
        return next(iter(DIFFERENCES))
    for why, places in DIFFERENCES.items():
        if any(_is_in(exchange, place) for place in places):
            return why
    return ""


def _is_in(exchange: Exchange, place: str) -> bool:
    scenario, _, numbers = place.partition(" ")
    first, _, last = numbers.partition("-")
    if exchange.scenario != scenario:
        return False
    return not numbers or int(first) <= exchange.number <= int(last or first)


def table() -> str:
    """The differences as the docs show them."""
    rows = [f"| {', '.join(places)} | {why} |" for why, places in DIFFERENCES.items()]
    return "\n".join(["| Recording | What differs, and why |", "|---|---|", *rows])


def discovery_problems(recorded: Any, ours: Any) -> list[str] | None:
    """What is wrong with a discovery document, beyond what is known not to be served; None if it is none."""
    there, here = dict(_entries(recorded)), dict(_entries(ours))
    if not there:
        return None
    problems = [f"{name} is missing" for name in there.keys() - here.keys() if not _is_unserved(name)]
    problems += [f"{name} should not be there" for name in here.keys() - there.keys() if not _is_added(name)]
    problems += [
        f"{name}: {here[name]} for {there[name]}"
        for name in there
        if name in here and alike(here[name]) != alike(there[name])
    ]
    if [name for name in there if name in here] != [name for name in here if name in there]:
        problems.append(f"the order is {list(here)}, not {list(there)}")
    return problems


def _entries(document: Any) -> Iterator[tuple[str, Any]]:
    """The things that a discovery document names, each with what it says about them."""
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind == "APIGroupDiscoveryList":
        for group in document["items"]:
            for version in group["versions"]:
                place = f"{group['metadata'].get('name', '')}/{version['version']}"
                for resource in version["resources"]:
                    yield from _resource_entries(place, resource)
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


def _resource_entries(place: str, resource: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    below = resource.get("subresources", ())
    yield f"{place}/{resource['resource']}", {key: item for key, item in resource.items() if key != "subresources"}
    for one in below:
        yield f"{place}/{resource['resource']}/{one['subresource']}", one


def _is_unserved(name: str) -> bool:
    group, _, rest = name.partition("/")
    resource = rest.partition("/")[2] if "/" in rest else ""
    is_document = name.startswith("openid/") or (not rest.rpartition("/")[2].startswith("v") and resource == "")
    return group in UNSERVED_GROUPS or resource in UNSERVED or resource.partition("/")[0] in UNSERVED or is_document


def _is_added(name: str) -> bool:
    return name.startswith(ADDED_GROUPS)
