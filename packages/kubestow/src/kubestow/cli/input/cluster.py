"""The cluster that a command is about: its options, and its reading from files or from a live API server.

A live cluster is listed once and read-only, everything that scheduling depends on. Each list is of one
resourceVersion, however many pages it has. Secrets and config maps are not read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kubestow.cli.command_group import grouped_options
from kubestow.cli.output import print_input
from kubestow.errors import APIError, InputError

if TYPE_CHECKING:
    from kubestow.cli.input.scheduler import SchedulerInput
    from kubestow.client.rest.credentials import Credentials
    from kubestow.client.rest.transport import Transport
    from kubestow.engine.input.cluster_objects import ClusterObjects
    from kubestow.engine.job_admission import QueueResources

#: The namespace of a command without ``--namespace`` if nothing names another one.
DEFAULT_NAMESPACE = "default"

_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class ClusterConnection:
    """Where a live cluster is; what is empty is found as by kubectl."""

    kubeconfig: str = ""
    context: str = ""
    master: str = ""

    @property
    def is_given(self) -> bool:
        """Whether any of the options is given."""
        return bool(self.kubeconfig or self.context or self.master)

    def __str__(self) -> str:
        return self.kubeconfig or self.master or "the cluster"

    async def credentials(self) -> Credentials:
        """The credentials for the API server. Raises InputError."""
        from kubestow.client.rest.credentials import load_credentials

        return await load_credentials(self.kubeconfig, context=self.context, master=self.master)

    def default_namespace(self) -> str:
        """The namespace of a command that is given none: that of the context. Raises InputError."""
        from kubestow.client.rest.credentials import default_namespace

        return default_namespace(self.kubeconfig, context=self.context, master=self.master)

    async def server_version(self) -> str:
        """Wait for the API server, and ask it for its version. Raises InputError and APIError."""
        from random import Random

        from kubestow.client.cluster_client import ClusterClient
        from kubestow.process import WallClock

        async with ClusterClient(await self.credentials(), clock=WallClock(), random=Random()) as cluster:
            return await cluster.wait_for_api_server()


CONNECTION_OPTIONS = (
    click.option("--kubeconfig", default="", metavar="FILE", help="Kubeconfig of the cluster. Default: as kubectl."),
    click.option("--context", default="", metavar="NAME", help="Context of the kubeconfig. Default: the current one."),
    click.option("--master", default="", metavar="URL", help="URL of the API server; overrides the kubeconfig."),
)

#: Adds the options of a connection; the command gets them as ``connection``.
connection_options = grouped_options("connection", ClusterConnection, CONNECTION_OPTIONS)


@dataclass(frozen=True, slots=True)
class ClusterInput(ClusterConnection):
    """The files of a cluster, or where a live one is."""

    clusters: tuple[str, ...] = ()

    def read(self, scheduler: SchedulerInput, *, strict: bool = False) -> ClusterObjects:
        """The cluster, a live one with the custom resources that the scheduler's plugins read.

        Problems of the input are printed on standard error. Raises InputError, APIError and Unreachable.
        """
        from kubestow.engine.input.cluster_objects import ClusterObjects

        if self.clusters and self.is_given:
            raise click.UsageError("--cluster excludes --kubeconfig, --context and --master")
        if self.clusters:
            cluster = ClusterObjects.load(*self.clusters, strict=strict)
        else:
            cluster = fetch_objects(self, scheduler.custom_paths()).cluster(str(self))
        if cluster.summary.problems:
            print_input("cluster", cluster.summary)
        return cluster

    def default_namespace(self) -> str:
        """The namespace of a command that is given none: "default" for files. Raises InputError."""
        return DEFAULT_NAMESPACE if self.clusters else ClusterConnection.default_namespace(self)


#: Adds the options that say where the cluster is read from; the command gets them as ``source``.
cluster_options = grouped_options(
    "source",
    ClusterInput,
    (
        click.option("--cluster", "clusters", multiple=True, help="Dump or folder with the cluster; - is stdin."),
        *CONNECTION_OPTIONS,
    ),
)


_NOT_FOUND, _FORBIDDEN = 404, 403
_PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
#: What admission of new pods depends on; their absence does not matter to existing pods.
_FOR_ADMISSION = (
    "/api/v1/limitranges",
    "/api/v1/resourcequotas",
    "/apis/node.k8s.io/v1/runtimeclasses",
)
_CLAIM_TEMPLATES = "resourceclaimtemplates"


@dataclass(slots=True)
class LiveObjects:
    """The lists of a cluster: the pages of each as JSON, by path, with the resourceVersion of the list.

    The resourceVersion is "" for a kind that the server does not serve. ``forbidden`` are the paths of optional kinds
    that the user may not list. ``server_version`` is that of the API server, such as ``v1.36.2``; "" if it does not
    tell.
    """

    pages: list[tuple[str, bytes]]
    versions: dict[str, str]
    forbidden: list[str]
    server_version: str

    @property
    def not_served(self) -> list[str]:
        """The paths of kinds that the server does not serve."""
        return [path for path, version in self.versions.items() if not version]

    def cluster(self, subject: str) -> ClusterObjects:
        """The cluster of these objects. Raises InputError, with ``subject`` as the name of the cluster."""
        from kubestow.engine.input.cluster_objects import ClusterObjects
        from kubestow.engine.input.documents import Problems, parse_objects

        problems = Problems()
        sources = (source for path, page in self.pages for source in parse_objects(page, path, problems))
        cluster = ClusterObjects.of_sources(sources, problems, subject=subject)
        cluster.server_version, cluster.listed = self.server_version, self.versions
        return cluster


def fetch_objects(connection: ClusterConnection, read_by: Mapping[str, str]) -> LiveObjects:
    """List the objects of a live cluster as :func:`list_objects` does, over a connection of its own."""
    return read_live(connection, lambda transport: list_objects(transport, read_by))


def read_live(
    connection: ClusterConnection,
    read: Callable[[Transport], Awaitable[_Found]],
    *,
    timeout: float | None = None,
) -> _Found:
    """What a coroutine function reads of a live cluster, over a connection that sends nothing but GET.

    ``timeout`` is that of each request in seconds, None for the usual one. Raises InputError, and what ``read`` raises.
    """
    import asyncio

    from kubestow.client.rest.transport import REQUEST_TIMEOUT, ReadOnlyTransport
    from kubestow.process import WallClock

    async def connected() -> _Found:
        within = REQUEST_TIMEOUT if timeout is None else timeout
        async with ReadOnlyTransport(await connection.credentials(), clock=WallClock(), timeout=within) as transport:
            return await read(transport)

    return asyncio.run(connected())


async def list_objects(transport: Transport, read_by: Mapping[str, str]) -> LiveObjects:
    """List everything that scheduling depends on, and the custom kinds at the paths of ``read_by``.

    These are with the plugins that read them. Raises APIError and Unreachable, and InputError if the user may not list
    one of them: decisions would not be those of the scheduler.
    """
    from kubestow.api.conversion import DEVICES, GROUPS
    from kubestow.api.scheduling import CompositePodGroup
    from kubestow.client.object_requests import list_pages, server_version
    from kubestow.client.served_versions import ServedVersions
    from kubestow.plugins.registry import find_pod_group_apis
    from kubestow.scheduling.events.resources import with_custom

    found = LiveObjects([], {}, [], "")
    with suppress(APIError):  # not allowed: the kubelets tell the least version
        found.server_version = server_version(await transport.request("GET", "/version"))
    served = ServedVersions(transport)
    for group in GROUPS:
        await served.discover(group)
    kinds: list[type[Any]] = [*(api.kind for api in find_pod_group_apis()), CompositePodGroup]
    listed = [served.addressed(resource) for resource in with_custom(kinds)]
    resources = {f"{resource.prefix}/{resource.plural}": resource for resource in listed}
    for_admission = (*_FOR_ADMISSION, f"{served.prefix(DEVICES, _CLAIM_TEMPLATES)}/{_CLAIM_TEMPLATES}")
    optional = {path for path, resource in resources.items() if resource.optional} | {*for_admission, *read_by}
    for path in dict.fromkeys((*resources, _PRIORITY_CLASSES, *for_admission, *read_by)):
        selector = resources[path].field_selector if path in resources else ""
        try:
            pages, version = await list_pages(transport, path, selector)
        except APIError as error:
            if error.code not in (_NOT_FOUND, _FORBIDDEN) or path not in optional:
                raise
            if error.code == _NOT_FOUND:
                found.versions[path] = ""
            elif path in read_by:
                raise InputError(path, f"{read_by[path]} reads it: {error}") from None
            else:
                found.forbidden.append(path)
        else:
            found.pages.extend((path, page) for page in pages)
            found.versions[path] = version or "0"
    return found


async def list_admission_objects(transport: Transport, resources: QueueResources, found: LiveObjects) -> None:
    """Add the objects of job queues, in the first of their versions that the server has, to what was listed.

    What is not served adds nothing. Raises Unreachable, and APIError, also if the user may not list one of the kinds:
    nothing is added then, as the queues do not decide without it as they do with it.
    """
    from kubestow.client.object_requests import list_pages
    from kubestow.client.served_versions import served_versions

    try:
        served = await served_versions(transport, resources.group)
    except APIError as error:
        if error.code != _NOT_FOUND:
            raise
        return
    version = next((version for version in resources.versions if version in served), None)
    listed: list[tuple[str, bytes]] = []
    for plural in resources.plurals if version is not None else ():
        path = f"/apis/{resources.group}/{version}/{plural}"
        try:
            pages, _ = await list_pages(transport, path)
        except APIError as error:
            if error.code != _NOT_FOUND:
                raise
        else:
            listed.extend((path, page) for page in pages)
    found.pages.extend(listed)
