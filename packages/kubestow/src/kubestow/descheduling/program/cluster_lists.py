"""The objects of a live cluster for one loop, listed anew each time.

A loop runs every few minutes and needs the cluster as it is then, so nothing is watched in between.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from kubestow.client.listing import list_pages
from kubestow.client.rest.transport import Transport
from kubestow.engine.input.documents import Problems, SourceObject, parse_objects
from kubestow.errors import APIError, Unreachable
from kubestow.log_fields import fields
from kubestow.scheduling.interfaces import Resource

_log = logging.getLogger(__name__)

_PATHS = (
    "/api/v1/nodes",
    "/api/v1/pods",
    "/api/v1/namespaces",
    "/api/v1/persistentvolumeclaims",
    "/apis/policy/v1/poddisruptionbudgets",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
)
_METRICS = ("/apis/metrics.k8s.io/v1beta1/nodes", "/apis/metrics.k8s.io/v1beta1/pods")
_NOT_FOUND, _FORBIDDEN = 404, 403


async def list_cluster(
    transport: Transport, *, for_scheduling: Iterable[Resource], metrics: bool, problems: Problems
) -> Iterable[SourceObject]:
    """The objects that evictions depend on, and those ``for_scheduling``, which scheduling depends on as well.

    With ``metrics`` also what nodes and pods use; a metrics server that fails is logged. Raises APIError and
    Unreachable.
    """
    resources = {f"{resource.prefix}/{resource.plural}": resource for resource in for_scheduling}
    paths = dict.fromkeys((*_PATHS, *resources))
    found: list[tuple[str, bytes]] = []
    for path in paths:
        try:
            pages, _ = await list_pages(transport, path)
        except APIError as error:
            is_optional = path in resources and resources[path].optional
            if error.code not in (_NOT_FOUND, _FORBIDDEN) or not is_optional:
                raise
        else:
            found += ((path, page) for page in pages)
    for path in _METRICS if metrics else ():
        try:
            found += ((path, page) for page in (await list_pages(transport, path))[0])
        except (APIError, Unreachable) as error:
            _log.warning("The metrics server does not respond: %s", error, extra=fields(path=path, err=str(error)))
    return [source for path, page in found for source in parse_objects(page, path, problems)]
