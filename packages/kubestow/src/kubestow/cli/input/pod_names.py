"""Pods and namespaces as arguments of commands: how they are written, and proposals for them as in kubectl.

Proposals are names in the live cluster of the options before the argument. There are none if it does not answer at
once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import click
import msgspec

from kubestow.cli.command_group import grouped_options
from kubestow.cli.input.cluster import DEFAULT_NAMESPACE, ClusterConnection, read_live
from kubestow.errors import KubestowError

#: How kubectl prints and takes the type of a pod before its name.
_POD_TYPES = ("pod/", "pods/", "po/")
_GROUP_TYPES = ("podgroup/", "podgroups/")
#: Seconds for a connection, and again for the response; and how many names are read.
_TIMEOUT, _MOST_NAMES = 3.0, 500


@dataclass(frozen=True, slots=True)
class PodName:
    """A pod as it was given, or a pod group where a command takes one."""

    name: str
    namespace: str

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name. Raises UsageError for two different namespaces."""
        namespace, _, name = self._untyped.rpartition("/")
        if namespace and self.namespace and namespace != self.namespace:
            raise click.UsageError(f"the namespace is {namespace} in {self.name}, and {self.namespace} in --namespace")
        return namespace or self.namespace or DEFAULT_NAMESPACE, name

    @property
    def is_group(self) -> bool:
        """Whether it is the name of a pod group, such as ``podgroup/train``."""
        return self.name.startswith(_GROUP_TYPES)

    @property
    def _untyped(self) -> str:
        prefix = next((prefix for prefix in (*_POD_TYPES, *_GROUP_TYPES) if self.name.startswith(prefix)), "")
        return self.name.removeprefix(prefix)

    def within(self, source: ClusterConnection) -> PodName:
        """The same pod; one without a namespace is in the default one of the cluster. Raises InputError."""
        given = self.namespace or "/" in self._untyped
        return self if given else PodName(self.name, source.default_namespace())

    def __str__(self) -> str:
        return "/".join(self.key)


def _complete_pods(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The pods of ``--namespace``, or else of the context's; with ``pod/`` before them if that is given."""
    if ctx.params.get("clusters"):
        return []
    prefix = next((prefix for prefix in _POD_TYPES if incomplete.startswith(prefix)), "")
    connection = _connection(ctx)
    try:
        namespace = ctx.params.get("namespace") or connection.default_namespace()
        found = _names(connection, f"/api/v1/namespaces/{quote(namespace)}/pods")
    except (KubestowError, msgspec.MsgspecError):
        return []
    return _beginning(incomplete, (prefix + name for name in found))


def _complete_namespaces(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    try:
        return _beginning(incomplete, _names(_connection(ctx), "/api/v1/namespaces"))
    except (KubestowError, msgspec.MsgspecError):
        return []


def _connection(ctx: click.Context) -> ClusterConnection:
    given: dict[str, Any] = ctx.params
    return ClusterConnection(*(given.get(name) or "" for name in ("kubeconfig", "context", "master")))


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


class _Metadata(msgspec.Struct):
    name: str


class _Item(msgspec.Struct):
    metadata: _Metadata


class _NameList(msgspec.Struct):
    items: list[_Item] = []


def _names(connection: ClusterConnection, path: str) -> list[str]:
    """The names of a collection. Raises InputError, APIError, Unreachable and MsgspecError."""
    found = read_live(
        connection,
        lambda transport: transport.request("GET", f"{path}?limit={_MOST_NAMES}", retries=0),
        timeout=_TIMEOUT,
    )
    return [item.metadata.name for item in msgspec.json.decode(found, type=_NameList).items]


#: Adds the argument POD, which a command gets as ``name``: "" without it, where it is optional.
pod_name_argument = click.argument("name", metavar="POD", shell_complete=_complete_pods)
optional_pod_name_argument = click.argument("name", metavar="[POD]", default="", shell_complete=_complete_pods)

#: Adds ``--namespace``.
namespace_option = click.option(
    "-n",
    "--namespace",
    default="",
    metavar="NAME",
    shell_complete=_complete_namespaces,
    help="Namespace of POD. Default: the context's.",
)

#: Adds the argument POD and ``--namespace``; the command gets them as ``pod``.
pod_argument = grouped_options("pod", PodName, (pod_name_argument, namespace_option))
