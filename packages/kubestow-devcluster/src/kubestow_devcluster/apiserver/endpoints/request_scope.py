"""The scope of a resource request: the kind, the parts of the path, the registry, and the encoder of responses.

Objects are encoded in the negotiated form: whole, metadata only or as a Table; in JSON, YAML or protobuf. Whole objects
in JSON, by far the most frequent form, are a constant prefix and the stored bytes; all other forms decode the object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
import yaml

from kubestow.errors import InvalidSelector
from kubestow.http.messages import HTTPResponse
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.endpoints.requests import Request, RequestInfo
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.printers import DEFAULT, PRINTERS
from kubestow_devcluster.apiserver.printers.table import ColumnDefinition, Printer
from kubestow_devcluster.apiserver.registry.registry import Registry, WriteOptions
from kubestow_devcluster.apiserver.schema.types import Object, UnmarshalTypeError
from kubestow_devcluster.apiserver.serialization import protobuf
from kubestow_devcluster.apiserver.serialization.media_types import (
    JSON,
    PROTOBUF,
    YAML,
    MediaTypeOptions,
    ResponseForm,
    decode_body,
    field_problems,
    negotiate_output_media_type,
)
from kubestow_devcluster.apiserver.storage.store import Collection, SelectionPredicate, StoredObject, parse_selectors


@dataclass(frozen=True, slots=True)
class RequestScope:
    request: Request
    info: RequestInfo
    kind: Kind
    registry: Registry
    #: Checks the content of a write, as :attr:`WriteOptions.authorize`.
    authorize_content: Callable[[Object, Object | None], None] | None = None
    #: Raises a 403 StatusError unless the user may create the object of the path; None if all users may do everything.
    authorize_creation: Callable[[], None] | None = None
    #: The warning headers of what has been decoded, which a failure has as well.
    decoding_warnings: dict[str, str] = field(default_factory=dict)

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

    def create(self, new: Object, *, applied: bool = False) -> StoredObject:
        """Create the object of the path of an update or patch, which needs the verb create as well.

        ``applied`` means that server-side apply has set managedFields. Raises a StatusError.
        """
        if self.authorize_creation is not None:
            self.authorize_creation()
        return self.registry.create(self.kind, self.info.namespace, new, self.write_options, applied=applied)

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
        self,
        decoded: Object,
        strict_problems: Callable[[list[str]], list[str]] | None = None,
        reject: Callable[[str | UnmarshalTypeError], statuses.StatusError] | None = None,
    ) -> tuple[Object, dict[str, str]]:
        """Convert a decoded object to the kind's schema, without kind and apiVersion; also the warning headers.

        ``strict_problems`` returns the problems of strict decoding, given the unknown fields. Raises a 400 StatusError
        for another kind, and for a value of the wrong type or, with strict validation, an unknown or duplicate field
        what ``reject`` returns, by default a 400 too.
        """
        reject = reject or self._cannot_be_handled
        kind = self.kind
        kind_name, api_version = decoded.get("kind") or kind.name, decoded.get("apiVersion") or kind.api_version
        if kind_name != kind.name or api_version != kind.api_version:
            raise self._wrong_kind(kind_name, api_version)
        unknown_fields: list[str] = []
        try:
            new = kind.struct.read(decoded, unknown_fields)
        except UnmarshalTypeError as error:
            raise reject(error) from None
        validation = self.request.field_validation
        warnings: list[str] = []
        unknown = kind.struct.unknown_fields(decoded) if unknown_fields else []
        problems = [f'unknown field "{path}"' for path in unknown]
        # Finding duplicate fields means parsing the body a second time, so only strict validation does it.
        if strict_problems is not None and validation == "Strict":
            problems = strict_problems(unknown)
        if problems:
            if validation == "Strict":
                raise reject(f"strict decoding error: {', '.join(problems)}")
            warnings = [] if validation == "Ignore" else problems
            self.decoding_warnings.update(_warning_headers(warnings))
        new.pop("kind", None)
        new.pop("apiVersion", None)
        if not isinstance(new.setdefault("metadata", {}), dict):
            raise self._cannot_be_handled("metadata is not an object")
        warnings += kind.strategy.warnings(new)
        return new, _warning_headers(warnings)

    def _cannot_be_handled(self, problem: str | UnmarshalTypeError) -> statuses.StatusError:
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


def _warning_headers(warnings: Sequence[str]) -> dict[str, str]:
    return {"Warning": ", ".join(map(statuses.warning_header, warnings))} if warnings else {}


def table(
    kind: Kind,
    objects: Sequence[StoredObject],
    metadata: Object,
    *,
    version: str,
    include_object: str,
    now: datetime,
    with_columns: bool = True,
) -> Object:
    """A Table of ``objects`` in a version of meta.k8s.io.

    ``include_object`` is the part of the object in each row: Object, Metadata or None.
    """
    printer = PRINTERS.get(kind.storage, DEFAULT) if kind.custom is None else kind.custom.printer
    rows = []
    for stored in objects:
        obj = kind.decode(stored)
        whole = msgspec.Raw(kind.encode(stored)) if include_object == "Object" else None
        rows.append(_row(printer, obj, whole, version=version, include_object=include_object, now=now))
    return _table_of(printer, rows, metadata, version=version, with_columns=with_columns)


def _row(printer: Printer, obj: Object, whole: Any, *, version: str, include_object: str, now: datetime) -> Object:
    """A row of a Table, with the cells of an object, and ``whole`` as the object or its metadata alone."""
    if include_object == "Metadata":
        type_meta = {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{version}"}
        whole = {**type_meta, "metadata": obj["metadata"]}
    return {"cells": printer.cells(obj, now), "object": whole}


def _table_of(
    printer: Printer, rows: list[Object], metadata: Object, *, version: str, with_columns: bool = True
) -> Object:
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": metadata,
        "columnDefinitions": [_definition(column) for column in printer.columns] if with_columns else None,
        "rows": rows,
    }


def _definition(column: ColumnDefinition) -> Object:
    return {
        "name": column.name,
        "type": column.type,
        "format": "name" if column.name == "Name" else "",
        "description": column.description,
        "priority": column.priority,
    }


_PARTIAL_METADATA = b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/%s","metadata":%s}'
_PARTIAL_METADATA_LIST = b'{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/%s","metadata":%s,"items":['
#: Bytes in one chunk of a long list.
_CHUNK_SIZE = 256 * 1024


class _Metadata(msgspec.Struct):
    metadata: msgspec.Raw


_METADATA = msgspec.json.Decoder(_Metadata)


class ResponseEncoder:
    """Encodes objects of one kind. ``include_object`` is the parameter of the same name for rows of a Table."""

    def __init__(
        self, kind: Kind, options: MediaTypeOptions, *, include_object: str, clock: Callable[[], datetime]
    ) -> None:
        self.kind = kind
        self._conversion, self.content_type = options.conversion, options.media_type
        self._version = options.version
        self._include_object, self._clock = include_object or "Metadata", clock

    @property
    def is_whole(self) -> bool:
        """Whether the encoding of an object depends on nothing but the object and the media type."""
        return self._conversion is ResponseForm.NONE

    def object_response(
        self, stored: StoredObject, status: int = 200, *, headers: dict[str, str] | None = None
    ) -> HTTPResponse:
        return self._response(self.encode(stored), status, headers)

    def list_response(self, objects: Sequence[StoredObject], list_metadata: dict[str, Any]) -> HTTPResponse:
        metadata = msgspec.json.encode(list_metadata)
        if self._conversion is ResponseForm.TABLE:
            return self._response(self._table(objects, list_metadata), 200, None)
        if self._conversion is ResponseForm.PARTIAL_OBJECT_METADATA:
            chunks = _list_chunks(
                _PARTIAL_METADATA_LIST % (self._version.encode(), metadata), (self.encode(stored) for stored in objects)
            )
        else:
            type_meta = (self.kind.names.list_kind.encode(), self.kind.api_version.encode())
            prefix = b'{"kind":"%s","apiVersion":"%s","metadata":%s,"items":[' % (*type_meta, metadata)
            encode_item = self.kind.encode_item
            chunks = _list_chunks(prefix, (encode_item(stored) for stored in objects))
        if self.content_type != JSON:
            return self._response(b"".join(chunks), 200, None)
        return HTTPResponse(200, chunks=chunks)

    def encode(self, stored: StoredObject, *, with_columns: bool = True) -> bytes:
        """One object in JSON, without a trailing newline. ``with_columns`` applies to Tables."""
        if self._conversion is ResponseForm.NONE:
            return self.kind.encode(stored)
        if self._conversion is ResponseForm.PARTIAL_OBJECT_METADATA:
            return _PARTIAL_METADATA % (self._version.encode(), bytes(_METADATA.decode(stored.data).metadata))
        return self._table([stored], {"resourceVersion": str(stored.resource_version)}, with_columns=with_columns)

    def response_of_another_kind(self, obj: Object, printer: Printer) -> HTTPResponse:
        """An object that is not stored, such as the Scale of a deployment."""
        if self._conversion is ResponseForm.NONE:
            return HTTPResponse.json(obj)
        metadata, version = obj["metadata"], self._version
        if self._conversion is ResponseForm.PARTIAL_OBJECT_METADATA:
            return self._response(_PARTIAL_METADATA % (version.encode(), msgspec.json.encode(metadata)), 200, None)
        include_object, now = self._include_object, self._clock()
        whole = obj if include_object == "Object" else None
        row = _row(printer, obj, whole, version=version, include_object=include_object, now=now)
        made = _table_of(printer, [row], {"resourceVersion": metadata["resourceVersion"]}, version=version)
        return self._response(msgspec.json.encode(made), 200, None)

    def encode_bookmark(self, resource_version: int, annotations: dict[str, str]) -> bytes:
        """The object of a BOOKMARK event: empty but for its metadata."""
        metadata: dict[str, Any] = {"resourceVersion": str(resource_version)}
        if annotations:
            metadata["annotations"] = annotations
        if self._conversion is ResponseForm.TABLE:
            return self._table([], metadata, with_columns=False)
        if self._conversion is ResponseForm.PARTIAL_OBJECT_METADATA:
            return _PARTIAL_METADATA % (self._version.encode(), msgspec.json.encode(metadata))
        struct = self.kind.struct
        empty = {} if struct.preserves_unknown_fields else struct.read({}, [])
        return self.kind.type_meta + msgspec.json.encode({**empty, "metadata": metadata})[1:]

    def _table(self, objects: Sequence[StoredObject], metadata: dict[str, Any], *, with_columns: bool = True) -> bytes:
        rows = table(
            self.kind,
            objects,
            metadata,
            version=self._version,
            include_object=self._include_object,
            now=self._clock(),
            with_columns=with_columns,
        )
        return msgspec.json.encode(rows)

    def _response(self, body: bytes, status: int, headers: dict[str, str] | None) -> HTTPResponse:
        return converted(HTTPResponse(status, body + b"\n", headers=headers or {}), self.content_type)


def converted(response: HTTPResponse, media_type: str) -> HTTPResponse:
    """A response in JSON in another media type.

    It stays JSON if it has no protobuf encoding, because of its kind or because an earlier version stored a value that
    protobuf cannot hold.
    """
    if media_type == JSON:
        return response
    obj = msgspec.json.decode(response.body)
    if media_type == YAML:
        text = yaml.dump(obj, Dumper=_YAMLDumper, default_flow_style=False, allow_unicode=True, width=2**20)
        return HTTPResponse(response.status, text.encode(), YAML, response.headers)
    try:
        return HTTPResponse(response.status, protobuf.encode(obj), PROTOBUF, response.headers)
    except (protobuf.UnsupportedKind, ValueError, TypeError):
        return response


class _YAMLDumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Dumps YAML as Kubernetes does: without aliases, and with double quotes where quotes are needed."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_str(dumper: Any, text: str) -> Any:
    tag = "tag:yaml.org,2002:str"
    is_plain = dumper.resolve(yaml.ScalarNode, text, (True, False)) == tag
    style = "|" if "\n" in text else None if is_plain and text else '"'
    return dumper.represent_scalar(tag, text, style=style)


_YAMLDumper.add_representer(str, _represent_str)


def _list_chunks(prefix: bytes, items: Iterator[bytes]) -> Iterator[bytes]:
    """The encoded list in chunks of similar size, so that a long list is never in memory at once."""
    chunk, size, separator = [prefix], len(prefix), b""
    for item in items:
        chunk += (separator, item)
        size += len(item) + 1
        separator = b","
        if size >= _CHUNK_SIZE:
            yield b"".join(chunk)
            chunk, size = [], 0
    chunk.append(b"]}\n")
    yield b"".join(chunk)
