"""Conversion of configurations that kube-scheduler no longer reads to equivalent v1 ones.

    KubeSchedulerConfiguration v1beta2, v1beta3 ─► versions ─┐
                                                             ├─► data of a v1 configuration, and warnings
    Policy, or a ConfigMap with one ─────────────► policy ───┘

Settings that equal v1 defaults are omitted. A setting without a v1 counterpart is either irrelevant today (a warning
says why) or an error: a configuration that silently stops filtering would be worse than none. Only errors of the old
format are reported here; the result is validated like any other configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubestow.config.configuration import API_VERSION, GROUP, KIND
from kubestow.config.document import Document, DocumentError, parse_document
from kubestow.config.field_errors import FieldError, configuration_error
from kubestow.config.legacy.conversion import Conversion, ConversionError
from kubestow.config.legacy.policy import convert_policy
from kubestow.config.legacy.versions import LEGACY_VERSIONS, convert_version
from kubestow.config.loading import Source

__all__ = ["Conversion", "convert", "is_legacy"]


def convert(source: Source, *, subject: str = "configuration") -> Conversion:
    """Convert a configuration of version v1beta2 or later, or a Policy, to v1.

    A v1 configuration is returned unchanged. Raises ConfigurationError, with path and line, for any other object and
    for settings without a v1 counterpart.
    """
    try:
        document = parse_document(source)
        try:
            document = _unwrapped(document)
            return _converted(document)
        except ConversionError as failure:
            errors = [document.with_line(error) for error in failure.errors]
    except DocumentError as failure:
        errors = [failure.error]
    raise configuration_error(subject, errors)


def is_legacy(source: Source) -> bool:
    """Whether a text is a configuration that :func:`convert` would change."""
    try:
        data = _unwrapped(parse_document(source)).data
    except (DocumentError, ConversionError):
        return False
    return isinstance(data, Mapping) and (_is_policy(data) or data.get("apiVersion") in LEGACY_VERSIONS)


def _converted(document: Document) -> Conversion:
    data = document.data
    if document.duplicates:
        raise ConversionError(document.duplicates)
    if isinstance(data, Mapping):
        conversion = _conversion(data)
        if conversion is not None:
            return Conversion(conversion.data, tuple(document.with_line(warning) for warning in conversion.warnings))
    known = ", ".join(version.rpartition("/")[2] for version in (*LEGACY_VERSIONS, API_VERSION))
    found = f"{data.get('apiVersion')} {data.get('kind')}" if isinstance(data, Mapping) else "none"
    text = f"expected a {KIND} of {GROUP} ({known}), a Policy, or a ConfigMap with one of these; got {found}"
    raise ConversionError([FieldError("", text)])


def _conversion(data: Mapping[str, Any]) -> Conversion | None:
    if _is_policy(data):
        return convert_policy(data)
    if data.get("kind") != KIND:
        return None
    if data.get("apiVersion") in LEGACY_VERSIONS:
        return convert_version(data)
    return Conversion(dict(data), ()) if data.get("apiVersion") == API_VERSION else None


def _is_policy(data: Mapping[str, Any]) -> bool:
    """Whether the data is a Policy; policy files often omit apiVersion and kind."""
    return data.get("kind") == "Policy" or ("kind" not in data and bool({"predicates", "priorities"} & data.keys()))


def _unwrapped(document: Document) -> Document:
    """The document inside a ConfigMap, with its own line numbers, or the document itself."""
    data = document.data
    if not isinstance(data, Mapping) or data.get("kind") != "ConfigMap":
        return document
    texts = data.get("data")
    if isinstance(texts, Mapping):
        key = "policy.cfg" if "policy.cfg" in texts else next(iter(texts)) if len(texts) == 1 else None
        if key is not None and isinstance(texts[key], str):
            return parse_document(texts[key])
    raise ConversionError([FieldError("data", 'expected a key "policy.cfg", or one key with a configuration')])
