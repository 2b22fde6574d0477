"""The versions in which an API server serves the resources that are converted (:mod:`kubestow.api.conversion`).

Those of resource.k8s.io are discovered when a client starts, and those of any group when a resource is not found at
its path: the server may be older, or may have been upgraded. Whatever addresses such a resource asks here for its
prefix, and converts what it sends and receives.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from kubestow.api.conversion import DEVICES, GROUPS, ConvertedGroup
from kubestow.api.json_text import UNDECODABLE, parse_json
from kubestow.client.rest.transport import Transport
from kubestow.errors import APIError, Unreachable
from kubestow.log_fields import fields
from kubestow.scheduling.interfaces import Resource

_log = logging.getLogger(__name__)

Raw = bytes | msgspec.Raw

_encode = msgspec.json.Encoder().encode


class _Version(msgspec.Struct):
    version: str = ""


class _APIGroup(msgspec.Struct):
    versions: list[_Version] = []


class _APIResource(msgspec.Struct):
    name: str = ""


class _APIResourceList(msgspec.Struct):
    resources: list[_APIResource] = []


class ServedVersions:
    """The version of each converted resource at one API server; the hub version until another one is discovered."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        #: The former version of a plural that the server serves instead of the hub version, by group.
        self._former: dict[ConvertedGroup, dict[str, str]] = {}

    async def discover(self, group: ConvertedGroup = DEVICES) -> None:
        """Ask the server. What it does not serve at all, or does not tell, is looked for in the hub version."""
        try:
            former = await self._served(group)
        except (APIError, Unreachable) as error:
            if not isinstance(error, APIError) or error.code != 404:
                text = "cannot discover the versions of %s, continuing with %s: %s"
                details = fields(group=group.name, version=group.hub, err=str(error))
                _log.warning(text, group.name, group.hub, error, extra=details)
            former = {}
        self._former[group] = former
        if former:
            _log.info("Former API versions are served", extra=fields(group=group.name, **dict(sorted(former.items()))))

    async def _served(self, group: ConvertedGroup) -> dict[str, str]:
        path = f"/apis/{group.name}"
        served = await served_versions(self._transport, group.name)
        if group.hub in served and not group.came_later:
            return {}
        newest: dict[str, str] = {}
        for version in (group.hub, *group.former):
            if version in served:
                listed: _APIResourceList = await _get(self._transport, f"{path}/{version}", _APIResourceList)
                for resource in listed.resources:
                    newest.setdefault(resource.name, version)
        return {plural: version for plural, version in newest.items() if version != group.hub}

    async def has(self, resource: Resource) -> bool:
        """Whether the server serves a resource; true as well if it does not tell."""
        try:
            listed: _APIResourceList = await _get(self._transport, self.addressed(resource).prefix, _APIResourceList)
        except (APIError, Unreachable) as error:
            return not (isinstance(error, APIError) and error.code == 404)
        return any(each.name == resource.plural for each in listed.resources)

    def prefix(self, group: ConvertedGroup, plural: str) -> str:
        """The path of the version in which a resource of a group is served."""
        return f"/apis/{group.name}/{self._former.get(group, {}).get(plural, group.hub)}"

    def addressed(self, resource: Resource) -> Resource:
        """A resource with the prefix at which it is served."""
        former = self._former_version(resource)
        return resource if former is None else replace(resource, prefix=self.prefix(former[0], resource.plural))

    def received(self, resource: Resource, data: Raw) -> Raw:
        """The JSON of an object as it was received, in the version of the resource; unchanged if it does not parse."""
        former = self._former_version(resource)
        if former is None:
            return data
        try:
            obj = parse_json(data)
        except UNDECODABLE:
            return data
        group, version = former
        return _encode(group.to_hub(version, obj)) if isinstance(obj, dict) else data

    def sent(self, resource: Resource, obj: Mapping[str, Any]) -> Mapping[str, Any]:
        """An object in the version of the resource, or a patch of one, as it is to be sent."""
        former = self._former_version(resource)
        return obj if former is None else former[0].from_hub(former[1], obj)

    def _former_version(self, resource: Resource) -> tuple[ConvertedGroup, str] | None:
        group = converted_group(resource)
        version = None if group is None else self._former.get(group, {}).get(resource.plural)
        return None if group is None or version is None else (group, version)


async def served_versions(transport: Transport, group: str) -> set[str]:
    """The versions in which a server has an API group. Raises APIError, as 404 for an unknown one, and Unreachable."""
    found: _APIGroup = await _get(transport, f"/apis/{group}", _APIGroup)
    return {each.version for each in found.versions}


async def _get(transport: Transport, path: str, kind: type[Any]) -> Any:
    body = await transport.request("GET", path)
    try:
        return msgspec.json.decode(body, type=kind)
    except UNDECODABLE as error:
        raise Unreachable(transport.server, f"malformed response at {path}: {error}") from None


def converted_group(resource: Resource) -> ConvertedGroup | None:
    """The group of a resource that some API servers serve in another version; None for other resources."""
    prefix = resource.prefix.removeprefix("/apis/")
    return next((g for g in GROUPS if prefix == g.hub_api_version and resource.kind in g.kinds), None)
