"""The versions in which an API server serves the resources that are converted (:mod:`kubestow.api.conversion`).

They are discovered when a client starts, and again when a resource is not found at its path: the server may have been
upgraded. Whatever addresses such a resource asks here for its prefix, and converts what it sends and receives.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from kubestow.api.conversion import FORMER_VERSIONS, GROUP, HUB, KINDS, from_hub, to_hub
from kubestow.api.json_text import UNDECODABLE, parse_json
from kubestow.client.rest.transport import Transport
from kubestow.errors import APIError, Unreachable
from kubestow.log_fields import fields
from kubestow.scheduling.interfaces import Resource

_log = logging.getLogger(__name__)

Raw = bytes | msgspec.Raw

_encode = msgspec.json.Encoder().encode
_GROUP_PATH = f"/apis/{GROUP}"


class _Version(msgspec.Struct):
    version: str = ""


class _APIGroup(msgspec.Struct):
    versions: list[_Version] = []


class _APIResource(msgspec.Struct):
    name: str = ""


class _APIResourceList(msgspec.Struct):
    resources: list[_APIResource] = []


class ServedVersions:
    """The version of each converted resource at one API server; v1 until :meth:`discover` has found another one."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        #: The former version of a plural that the server serves instead of v1.
        self._former: dict[str, str] = {}

    async def discover(self) -> None:
        """Ask the server. What it does not serve at all, or does not tell, is looked for in v1."""
        try:
            self._former = await self._served()
        except (APIError, Unreachable) as error:
            if not isinstance(error, APIError) or error.code != 404:
                text = "cannot discover the versions of %s, continuing with %s: %s"
                _log.warning(text, GROUP, HUB, error, extra=fields(group=GROUP, version=HUB, err=str(error)))
            self._former = {}
        if self._former:
            versions = dict(sorted(self._former.items()))
            _log.info("Former API versions are served", extra=fields(group=GROUP, **versions))

    async def _served(self) -> dict[str, str]:
        group: _APIGroup = await self._get(_GROUP_PATH, _APIGroup)
        served = {each.version for each in group.versions}
        former: dict[str, str] = {}
        if HUB in served:
            return former
        for version in FORMER_VERSIONS:
            if version in served:
                listed: _APIResourceList = await self._get(f"{_GROUP_PATH}/{version}", _APIResourceList)
                for resource in listed.resources:
                    former.setdefault(resource.name, version)
        return former

    async def _get(self, path: str, kind: type[Any]) -> Any:
        body = await self._transport.request("GET", path)
        try:
            return msgspec.json.decode(body, type=kind)
        except UNDECODABLE as error:
            raise Unreachable(self._transport.server, f"malformed response at {path}: {error}") from None

    def prefix(self, plural: str) -> str:
        """The path of the version in which a resource of the group is served."""
        return f"{_GROUP_PATH}/{self._former.get(plural, HUB)}"

    def addressed(self, resource: Resource) -> Resource:
        """A resource with the prefix at which it is served."""
        version = self._former_version(resource)
        return resource if version is None else replace(resource, prefix=self.prefix(resource.plural))

    def received(self, resource: Resource, data: Raw) -> Raw:
        """The JSON of an object as it was received, in the version of the resource; unchanged if it does not parse."""
        version = self._former_version(resource)
        if version is None:
            return data
        try:
            obj = parse_json(data)
        except UNDECODABLE:
            return data
        return _encode(to_hub(version, obj)) if isinstance(obj, dict) else data

    def sent(self, resource: Resource, obj: Mapping[str, Any]) -> Mapping[str, Any]:
        """An object in the version of the resource, or a patch of one, as it is to be sent."""
        version = self._former_version(resource)
        return obj if version is None else from_hub(version, obj)

    def _former_version(self, resource: Resource) -> str | None:
        return self._former.get(resource.plural) if is_converted(resource) else None


def is_converted(resource: Resource) -> bool:
    """Whether a resource is served in another version by some API servers."""
    return resource.kind in KINDS and resource.prefix == f"{_GROUP_PATH}/{HUB}"
