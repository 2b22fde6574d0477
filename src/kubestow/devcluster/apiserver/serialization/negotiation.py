"""Content negotiation: the media type and the form of a response, from the Accept header."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from kubestow.devcluster.apiserver import statuses

__all__ = ["JSON", "SUPPORTED_MEDIA_TYPES", "YAML", "Conversion", "MediaTypeOptions", "negotiate_output_media_type"]

JSON, YAML = "application/json", "application/yaml"
#: The media types that error messages list, as kube-apiserver does; responses are never in protobuf.
SUPPORTED_MEDIA_TYPES = f"{JSON}, {YAML}, application/vnd.kubernetes.protobuf"
_REPRESENTATIONS = f"{SUPPORTED_MEDIA_TYPES}, {JSON};stream=watch, application/vnd.kubernetes.protobuf;stream=watch"


class Conversion(Enum):
    """What objects are converted to before encoding (``as=`` in the Accept header)."""

    NONE = ""
    PARTIAL_OBJECT_METADATA = "PartialObjectMetadata"
    TABLE = "Table"


_CONVERSIONS = {
    "Table": Conversion.TABLE,
    "PartialObjectMetadata": Conversion.PARTIAL_OBJECT_METADATA,
    "PartialObjectMetadataList": Conversion.PARTIAL_OBJECT_METADATA,
}


class MediaTypeOptions(NamedTuple):
    """The negotiated media type, JSON or YAML, and conversion."""

    conversion: Conversion
    media_type: str

    @property
    def is_yaml(self) -> bool:
        return self.media_type == YAML


@lru_cache(maxsize=256)
def negotiate_output_media_type(accept: str) -> MediaTypeOptions:
    """The first clause of the header that the server supports. Raises a 406 StatusError without any."""
    has_conversion = False
    for clause in accept.split(",") if accept else ["*/*"]:
        media_type, *parameters = (part.strip() for part in clause.split(";"))
        if media_type in ("*/*", "application/*"):
            media_type = JSON
        if media_type not in (JSON, YAML):
            continue
        options = dict(parameter.split("=", 1) for parameter in parameters if "=" in parameter)
        if "as" not in options:
            return MediaTypeOptions(Conversion.NONE, media_type)
        has_conversion = True
        conversion = _CONVERSIONS.get(options["as"])
        if conversion and options.get("g", "meta.k8s.io") == "meta.k8s.io" and options.get("v", "v1") == "v1":
            return MediaTypeOptions(conversion, media_type)
    if has_conversion:
        raise statuses.not_acceptable(f"only the following media types are accepted: {SUPPORTED_MEDIA_TYPES}")
    message = f"406: Not Acceptable\n\nAvailable representations: {_REPRESENTATIONS}"
    raise statuses.not_acceptable(message, with_details=True)
