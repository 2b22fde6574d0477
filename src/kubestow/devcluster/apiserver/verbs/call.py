"""One request in its context: the kind it is about, what its path names, and the registry to ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kubestow.devcluster.apiserver import statuses
from kubestow.devcluster.apiserver.paths import Target
from kubestow.devcluster.apiserver.registry.registry import Registry, WriteOptions
from kubestow.devcluster.apiserver.requests import Request
from kubestow.devcluster.apiserver.resources import Kind, Object
from kubestow.devcluster.apiserver.schema import UnmarshalTypeError
from kubestow.devcluster.apiserver.selectors import Selector, selector
from kubestow.devcluster.apiserver.serialization import negotiation
from kubestow.devcluster.apiserver.serialization.views import View
from kubestow.devcluster.apiserver.storage.store import Collection
from kubestow.errors import InvalidSelector

__all__ = ["Call"]


@dataclass(frozen=True, slots=True)
class Call:
    request: Request
    target: Target
    kind: Kind
    registry: Registry

    @property
    def collection(self) -> Collection:
        return self.registry.store.collection(self.kind.storage)

    @property
    def view(self) -> View:
        include = self.request.query.get("includeObject", "")
        return View(self.kind, self.request.representation, include_object=include, now=self.registry.clock)

    @property
    def write(self) -> WriteOptions:
        return WriteOptions(self.request.manager, self.request.dry_run)

    @property
    def prefix(self) -> str:
        """The keys that a list or watch in this scope is about."""
        return f"{self.target.namespace}/" if self.target.namespace else ""

    def selector(self) -> Selector:
        """Raises a 400 Failure."""
        query = self.request.query
        fields = query.get("fieldSelector", "")
        if self.target.name:
            fields = f"metadata.name={self.target.name}" + (f",{fields}" if fields else "")
        try:
            return selector(query.get("labelSelector", ""), fields, self.kind.selectable)
        except InvalidSelector as invalid:
            raise statuses.bad_request(invalid.problem) from None

    def body(self) -> tuple[Object, dict[str, str]]:
        """The object in the body, read through the schema, and warning headers. Raises a 400 or 415 Failure."""
        decoded = negotiation.decode(self.request.body, self.request.content_type, expected=self.kind.name)
        # Looking for fields given twice takes reading the body twice, so it is for those who ask for it.
        if self.request.field_validation == "Strict":
            repeated = negotiation.repeated_fields(self.request.body, self.request.content_type)
            if repeated:
                problems = ", ".join(f'duplicate field "{path}"' for path in repeated)
                raise self.unreadable(f"strict decoding error: {problems}")
        return self.read(decoded)

    def read(self, decoded: Object) -> tuple[Object, dict[str, str]]:
        """``decoded`` as an object of the kind, without kind and apiVersion. Raises a 400 Failure."""
        kind, said = self.kind, decoded.get("kind") or self.kind.name
        version = decoded.get("apiVersion") or kind.api_version
        if said != kind.name or version != kind.api_version:
            raise self._wrong_type(said, version)
        unknown_fields: list[str] = []
        try:
            new = kind.struct.read(decoded, unknown_fields)
        except UnmarshalTypeError as mismatch:
            raise self.unreadable(str(mismatch)) from None
        headers: dict[str, str] = {}
        how = self.request.field_validation
        if unknown_fields:
            headers = self._unknown_fields(kind.struct.unknown_fields(decoded), how)
        new.pop("kind", None)
        new.pop("apiVersion", None)
        if not isinstance(new.setdefault("metadata", {}), dict):
            raise self.unreadable("metadata is not an object")
        return new, headers

    def unreadable(self, problem: str) -> statuses.StatusError:
        kind = self.kind
        return statuses.bad_request(
            f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: {problem}'
        )

    def _wrong_type(self, said: Any, version: Any) -> statuses.StatusError:
        kind = self.kind
        if version == kind.api_version:
            problem = f"converting ({kind.version}.{said}) to ({kind.group or 'core'}.{kind.name}): unknown conversion"
            return statuses.bad_request(
                f'{said} in version "{kind.version}" cannot be handled as a {kind.name}: {problem}'
            )
        message = (
            f"the API version in the data ({version}) does not match the expected API version ({kind.api_version})"
        )
        return statuses.bad_request(message)

    def _unknown_fields(self, paths: list[str], how: str) -> dict[str, str]:
        problems = [f'unknown field "{path}"' for path in paths]
        if how == "Strict":
            raise self.unreadable(f"strict decoding error: {', '.join(problems)}")
        if how == "Ignore":
            return {}
        return {"Warning": ", ".join(map(statuses.warning, problems))}
