"""A live cluster as input of the offline commands: everything that scheduling depends on, listed once and read-only.

Each list is of one resourceVersion, however many pages it has. Secrets and config maps are not read.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubestow.errors import APIError

if TYPE_CHECKING:
    from kubestow.cli.inputs import Connection
    from kubestow.client.rest.transport import Transport
    from kubestow.engine.input.cluster import Cluster

__all__ = ["LiveObjects", "fetch_cluster", "fetch_objects", "list_objects"]


_NOT_FOUND, _FORBIDDEN = 404, 403
_PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
#: What admission of new pods depends on; their absence does not matter to existing pods.
_FOR_ADMISSION = (
    "/api/v1/limitranges",
    "/apis/node.k8s.io/v1/runtimeclasses",
    "/apis/resource.k8s.io/v1/resourceclaimtemplates",
)


@dataclass(frozen=True, slots=True)
class LiveObjects:
    """The lists of a cluster: the pages of each as JSON, by path, with the resourceVersion of the list.

    ``missing`` are the paths of kinds that the server does not serve, or that the user may not list.
    """

    pages: list[tuple[str, bytes]]
    versions: dict[str, str]
    missing: list[str]

    def cluster(self, subject: str) -> Cluster:
        """The cluster of these objects. Raises InputError, with ``subject`` as the name of the cluster."""
        from kubestow.engine.input.cluster import Cluster
        from kubestow.engine.input.documents import parse_objects
        from kubestow.engine.input.problems import Problems

        problems = Problems()
        sources = (source for path, page in self.pages for source in parse_objects(page, path, problems))
        return Cluster.of_sources(sources, problems, subject=subject)


def fetch_cluster(connection: Connection) -> Cluster:
    """Read a live cluster. Raises InputError, APIError and Unreachable."""
    return fetch_objects(connection).cluster(str(connection))


def fetch_objects(connection: Connection) -> LiveObjects:
    """List the objects of a cluster, as :func:`fetch_cluster` does."""
    return asyncio.run(_fetch(connection))


async def _fetch(connection: Connection) -> LiveObjects:
    from kubestow.client.rest.transport import Transport
    from kubestow.wall_clock import WallClock

    async with Transport(await connection.credentials(), clock=WallClock()) as transport:
        return await list_objects(transport)


async def list_objects(transport: Transport) -> LiveObjects:
    """List everything that scheduling depends on. Raises APIError and Unreachable."""
    from kubestow.client.listing import list_pages
    from kubestow.scheduling.events.resources import WATCHED

    resources = {f"{resource.prefix}/{resource.plural}": resource for resource in WATCHED}
    optional = {path for path, resource in resources.items() if resource.optional} | {*_FOR_ADMISSION}
    found = LiveObjects([], {}, [])
    for path in (*resources, _PRIORITY_CLASSES, *_FOR_ADMISSION):
        selector = resources[path].field_selector if path in resources else ""
        try:
            pages, version = await list_pages(transport, path, selector)
        except APIError as error:
            if error.code not in (_NOT_FOUND, _FORBIDDEN) or path not in optional:
                raise
            found.missing.append(path)
        else:
            found.pages.extend((path, page) for page in pages)
            found.versions[path] = version
    return found
