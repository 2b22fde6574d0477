"""The scope of a resource request: the kind, the parts of the path, and the registry that serves it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from kubestow.errors import InvalidSelector
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.endpoints.requests import Request, RequestInfo
from kubestow_devcluster.apiserver.endpoints.response_encoder import ResponseEncoder
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.registry.registry import Registry, WriteOptions
from kubestow_devcluster.apiserver.schema.types import Object, UnmarshalTypeError
from kubestow_devcluster.apiserver.serialization.decoding import decode_body, field_problems
from kubestow_devcluster.apiserver.serialization.negotiation import negotiate_output_media_type
from kubestow_devcluster.apiserver.storage.selectors import SelectionPredicate, parse_selectors
from kubestow_devcluster.apiserver.storage.store import Collection, StoredObject


@dataclass(frozen=True, slots=True)
class RequestScope:
    request: Request
    info: RequestInfo
    kind: Kind
    registry: Registry
    #: Checks the content of a write, as :attr:`WriteOptions.authorize`.
    authorize_content: Callable[[Object, Object | None], None] | None = None

    @property
    def collection(self) -> Collection:
        return self.registry.store.collection(self.kind.storage)

    @property
    def encoder(self) -> ResponseEncoder:
        """The encoder of the negotiated form. Raises a 406 StatusError."""
        include_object = self.request.query.get("includeObject", "")
        media_type = negotiate_output_media_type(self.request.headers.accept, has_protobuf=self.kind.has_protobuf)
        return ResponseEncoder(self.kind, media_type, include_object=include_object, clock=self.registry.clock)

    @property
    def write_options(self) -> WriteOptions:
        """Raises a 422 StatusError."""
        return WriteOptions(self.request.field_manager, self.request.dry_run, self.authorize_content)

    @property
    def key_prefix(self) -> str:
        """The prefix of the keys in the namespace of the request; empty for all namespaces."""
        return f"{self.info.namespace}/" if self.info.namespace else ""

    def get(self) -> StoredObject:
        """The object that the path names. Raises a 404 StatusError."""
        return self.registry.get(self.kind, self.info.namespace, self.info.name)

    def predicate(self) -> SelectionPredicate:
        """The selectors of a list or watch. Raises a 400 StatusError."""
        query = self.request.query
        fields = query.get("fieldSelector", "")
        if self.info.name:
            fields = f"metadata.name={self.info.name}" + (f",{fields}" if fields else "")
        try:
            return parse_selectors(query.get("labelSelector", ""), fields, self.kind.rest.selectable_fields)
        except InvalidSelector as invalid:
            raise statuses.bad_request(invalid.problem) from None

    def decode(self) -> tuple[Object, dict[str, str]]:
        """The object in the body and the warning headers, as :meth:`read`. Raises a 400, 413 or 415 StatusError."""
        body, content_type = self.request.body, self.request.headers.content_type
        decoded = decode_body(body, content_type, expected=self.kind.name, has_protobuf=self.kind.has_protobuf)
        return self.read(decoded, partial(field_problems, body, content_type))

    def read(
        self, decoded: Object, strict_problems: Callable[[list[str]], list[str]] | None = None
    ) -> tuple[Object, dict[str, str]]:
        """Convert a decoded object to the kind's schema, without kind and apiVersion; also the warning headers.

        ``strict_problems`` returns the problems of strict decoding, given the unknown fields. Raises a 400 StatusError
        for another kind, a value of the wrong type, or, with strict validation, an unknown or duplicate field.
        """
        kind = self.kind
        kind_name, api_version = decoded.get("kind") or kind.name, decoded.get("apiVersion") or kind.api_version
        if kind_name != kind.name or api_version != kind.api_version:
            raise self._wrong_kind(kind_name, api_version)
        unknown_fields: list[str] = []
        try:
            new = kind.struct.read(decoded, unknown_fields)
        except UnmarshalTypeError as error:
            raise self._cannot_be_handled(str(error)) from None
        validation = self.request.field_validation
        warnings: list[str] = []
        unknown = kind.struct.unknown_fields(decoded) if unknown_fields else []
        problems = [f'unknown field "{path}"' for path in unknown]
        # Finding duplicate fields means parsing the body a second time, so only strict validation does it.
        if strict_problems is not None and validation == "Strict":
            problems = strict_problems(unknown)
        if problems:
            if validation == "Strict":
                raise self._cannot_be_handled(f"strict decoding error: {', '.join(problems)}")
            warnings = [] if validation == "Ignore" else problems
        new.pop("kind", None)
        new.pop("apiVersion", None)
        if not isinstance(new.setdefault("metadata", {}), dict):
            raise self._cannot_be_handled("metadata is not an object")
        warnings += kind.strategy.warnings(new)
        return new, {"Warning": ", ".join(map(statuses.warning_header, warnings))} if warnings else {}

    def _cannot_be_handled(self, problem: str) -> statuses.StatusError:
        kind = self.kind
        return statuses.bad_request(
            f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: {problem}'
        )

    def _wrong_kind(self, kind_name: Any, api_version: Any) -> statuses.StatusError:
        kind = self.kind
        if api_version != kind.api_version:
            return statuses.bad_request(
                f"the API version in the data ({api_version}) does not match the expected API version"
                f" ({kind.api_version})"
            )
        target = f"{kind.group or 'core'}.{kind.name}"
        problem = f"converting ({kind.version}.{kind_name}) to ({target}): unknown conversion"
        return statuses.bad_request(
            f'{kind_name} in version "{kind.version}" cannot be handled as a {kind.name}: {problem}'
        )
