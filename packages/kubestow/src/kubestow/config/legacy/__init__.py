"""Conversion of configurations that kube-scheduler no longer reads to equivalent v1 ones.

    KubeSchedulerConfiguration v1alpha1 ──► alpha ─┬─► versions ─┐
    … v1alpha2, v1beta1, v1beta2, v1beta3 ─────────┘             ├─► data of a v1 configuration, and warnings
    Policy, or a ConfigMap with one ───────────────────► policy ─┘

Settings that equal v1 defaults are omitted. A setting without a v1 counterpart is either irrelevant today (a warning
says why) or an error: a configuration that silently stops filtering would be worse than none. Only errors of the old
format are reported here; the result is validated like any other configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubestow.config.configuration import API_VERSION, GROUP, KIND
from kubestow.config.document import Document, DocumentError
from kubestow.config.field_errors import FieldError, configuration_error
from kubestow.config.legacy.alpha import ReadFile
from kubestow.config.legacy.conversion import Conversion, ConversionError
from kubestow.config.legacy.policy import convert_policy
from kubestow.config.legacy.versions import convert_version
from kubestow.config.loading import Source
from kubestow.config.managed_services import read_document
from kubestow.config.type_meta import LEGACY_VERSIONS

__all__ = ["Conversion", "convert", "is_legacy"]


def convert(source: Source, *, subject: str = "configuration", read_file: ReadFile | None = None) -> Conversion:
    """Convert a configuration of an older version, or a Policy, to v1.

    ``read_file`` reads the file of a Policy that a v1alpha1 configuration names; without it that is an error. A v1
    configuration is returned unchanged, that of a managed service as the v1 configuration that it stands for. Raises
    ConfigurationError, with path and line, for any other object and for settings without a v1 counterpart.
    """
    try:
        document = read_document(source)
        try:
            return _converted(document, read_file)
        except ConversionError as failure:
            errors = [document.located(error) for error in failure.errors]
    except DocumentError as failure:
        errors = [failure.error]
    raise configuration_error(subject, errors)


def is_legacy(source: Source) -> bool:
    """Whether a text is a configuration that :func:`convert` would change."""
    try:
        data = read_document(source).data
    except DocumentError:
        return False
    return isinstance(data, Mapping) and (_is_policy(data) or data.get("apiVersion") in LEGACY_VERSIONS)


def _converted(document: Document, read_file: ReadFile | None) -> Conversion:
    data = document.data
    if errors := (*document.duplicates, *document.refused):
        raise ConversionError(errors)
    if isinstance(data, Mapping):
        conversion = _conversion(data, read_file)
        if conversion is not None:
            warnings = tuple(document.located(warning) for warning in conversion.warnings)
            return Conversion(conversion.data, (*document.remarks, *warnings))
    known = ", ".join(dict.fromkeys(version.rpartition("/")[2] for version in (*LEGACY_VERSIONS, API_VERSION)))
    found = f"{data.get('apiVersion')} {data.get('kind')}" if isinstance(data, Mapping) else "none"
    text = f"expected a {KIND} of {GROUP} ({known}), a Policy, or a ConfigMap with one of these; got {found}"
    raise ConversionError([FieldError("", text)])


def _conversion(data: Mapping[str, Any], read_file: ReadFile | None) -> Conversion | None:
    if _is_policy(data):
        return convert_policy(data)
    if data.get("kind") != KIND:
        return None
    if data.get("apiVersion") in LEGACY_VERSIONS:
        return convert_version(data, read_file)
    return Conversion(dict(data), ()) if data.get("apiVersion") == API_VERSION else None


def _is_policy(data: Mapping[str, Any]) -> bool:
    """Whether the data is a Policy; policy files often omit apiVersion and kind."""
    return data.get("kind") == "Policy" or ("kind" not in data and bool({"predicates", "priorities"} & data.keys()))
