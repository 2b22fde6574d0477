"""The minor version of Kubernetes that decides in a cluster, as far as its objects tell.

The version of the API server is known of a live cluster and of a snapshot of one. Otherwise the newest kubelet counts:
kubelets are never newer than their API server, and usually of the same minor version.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import msgspec

from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.input.documents import SourceObject
from kubestow.rules.minors import DEFAULT_MINOR, NOT_COMPARED, Minor, release_of


@dataclass(frozen=True, slots=True)
class ClusterVersion:
    """The minor version to decide as, and why this one: "" for the default, where nothing tells a version.

    ``warning`` says that the nodes are of several minor versions; "" if they are not.
    """

    minor: Minor
    reason: str
    warning: str = ""

    def __str__(self) -> str:
        caveat = "" if self.minor.is_compared else f"; {NOT_COMPARED}"
        return f"decides as Kubernetes {self.minor}: {self.reason}{caveat}"


def versions_text(*emulated: str, server_version: str) -> str:
    """The minor versions that were decided as, and that of the API server if it is known, as reports name them."""
    remarks = [f"API server {server_version}"] if server_version else []
    if not all(Minor.parse(version, subject="emulated version").is_compared for version in emulated):
        remarks.append(NOT_COMPARED)
    return f"Kubernetes {' and '.join(emulated)}" + (f" ({'; '.join(remarks)})" if remarks else "")


def version_of(cluster: ClusterObjects) -> ClusterVersion:
    """The version to decide as. Raises InputError if the API server's cannot be emulated."""
    kubelets = {version: nodes for version, nodes in kubelet_versions(cluster.sources).items() if release_of(version)}
    releases: Counter[tuple[int, int]] = Counter()
    for version, nodes in kubelets.items():
        releases[release_of(version) or (0, 0)] += nodes
    warning = _mixed(releases) if len(releases) > 1 else ""
    server = cluster.server_version
    if server:
        return ClusterVersion(Minor.of_server(server), f"the version of its API server is {server}", warning)
    if not releases:
        return ClusterVersion(DEFAULT_MINOR, "")
    newest = max(releases)
    kubelet = max(version for version in kubelets if release_of(version) == newest)
    minor = Minor.nearest(newest)
    nearest = "" if str(minor) == ".".join(map(str, newest)) else "the nearest supported: "
    return ClusterVersion(minor, f"{nearest}its newest kubelet is {kubelet}", warning)


def _mixed(releases: Counter[tuple[int, int]]) -> str:
    found = ", ".join(f"{releases[each]:,} of {each[0]}.{each[1]}" for each in sorted(releases, reverse=True))
    return f"the nodes have kubelets of several minor versions: {found}"


class _NodeInfo(msgspec.Struct, rename="camel", frozen=True):
    kubelet_version: str = ""


class _Status(msgspec.Struct, rename="camel", frozen=True):
    node_info: _NodeInfo = _NodeInfo()


class _Node(msgspec.Struct, frozen=True):
    status: _Status = _Status()


_NODE = msgspec.json.Decoder(_Node)


def kubelet_versions(sources: list[SourceObject]) -> Counter[str]:
    """The number of nodes of each version of their kubelets, those without one left out."""
    versions: Counter[str] = Counter()
    for source in sources:
        if source.kind == "Node" and b"kubeletVersion" in bytes(source.raw):
            try:
                versions[_NODE.decode(source.raw).status.node_info.kubelet_version] += 1
            except msgspec.ValidationError:  # another field of status has a wrong type
                continue
    versions.pop("", None)
    return versions
