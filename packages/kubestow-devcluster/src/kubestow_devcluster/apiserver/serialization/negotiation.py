"""Content negotiation: the media type and the form of a response, from the Accept header."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from kubestow_devcluster.apiserver import statuses

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
#: The media types that error messages list; custom resources have no protobuf encoding.
SUPPORTED_MEDIA_TYPES = f"{JSON}, {YAML}, {PROTOBUF}"
_REPRESENTATIONS = f"{SUPPORTED_MEDIA_TYPES}, {JSON};stream=watch, {PROTOBUF};stream=watch"


class ResponseForm(Enum):
    """What objects are converted to before encoding (``as=`` in the Accept header)."""

    NONE = ""
    PARTIAL_OBJECT_METADATA = "PartialObjectMetadata"
    TABLE = "Table"


_CONVERSIONS = {
    "Table": ResponseForm.TABLE,
    "PartialObjectMetadata": ResponseForm.PARTIAL_OBJECT_METADATA,
    "PartialObjectMetadataList": ResponseForm.PARTIAL_OBJECT_METADATA,
}


class MediaTypeOptions(NamedTuple):
    """The negotiated media type (JSON, YAML or protobuf), and the conversion with its version of meta.k8s.io."""

    conversion: ResponseForm
    media_type: str
    version: str = "v1"


@lru_cache(maxsize=256)
def negotiate_output_media_type(accept: str, *, has_protobuf: bool, has_conversions: bool = True) -> MediaTypeOptions:
    """The first clause of the header that the server supports. Raises a 406 StatusError without any.

    ``has_protobuf`` says whether the kind has a protobuf encoding, ``has_conversions`` whether it has Tables and
    PartialObjectMetadata. Tables have no protobuf encoding.
    """
    has_conversion = False
    supported = (JSON, YAML, PROTOBUF) if has_protobuf else (JSON, YAML)
    for clause in accept.split(",") if accept else ["*/*"]:
        media_type, *parameters = (part.strip() for part in clause.split(";"))
        if media_type in ("*/*", "application/*"):
            media_type = JSON
        if media_type not in supported:
            continue
        options = dict(parameter.split("=", 1) for parameter in parameters if "=" in parameter)
        if "as" not in options:
            return MediaTypeOptions(ResponseForm.NONE, media_type)
        has_conversion = True
        conversion = _CONVERSIONS.get(options["as"])
        if not has_conversions or (conversion is ResponseForm.TABLE and media_type == PROTOBUF):
            continue
        version = options.get("v", "v1")
        if conversion and options.get("g", "meta.k8s.io") == "meta.k8s.io" and version in ("v1", "v1beta1"):
            return MediaTypeOptions(conversion, media_type, version)
    if has_conversion or not has_protobuf:
        raise statuses.not_acceptable(f"only the following media types are accepted: {', '.join(supported)}")
    message = f"406: Not Acceptable\n\nAvailable representations: {_REPRESENTATIONS}"
    raise statuses.not_acceptable(message, with_details=True)
