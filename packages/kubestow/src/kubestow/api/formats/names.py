"""Validation of names: of objects, labels, label values and resources (apimachinery's ``util/validation``).

Each function returns one message per broken rule, in Kubernetes' own wording, and an empty tuple for a valid name. The
same names recur throughout a cluster, so results are cached. Lengths are in bytes of UTF-8.
"""

from __future__ import annotations

import re
from functools import lru_cache

NameErrors = tuple[str, ...]
"""The messages of the rules that a name breaks; empty for a valid name."""

_MAX_LABEL_LENGTH = 63
_MAX_SUBDOMAIN_LENGTH = 253
_NAME_PATTERN = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE_PATTERN = f"({_NAME_PATTERN})?"
_LABEL_PATTERN = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_1035_PATTERN = "[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_PATTERN = rf"{_LABEL_PATTERN}(\.{_LABEL_PATTERN})*"
_NAME, _LABEL_VALUE = re.compile(_NAME_PATTERN), re.compile(_LABEL_VALUE_PATTERN)
_LABEL, _LABEL_1035 = re.compile(_LABEL_PATTERN), re.compile(_LABEL_1035_PATTERN)
_SUBDOMAIN = re.compile(_SUBDOMAIN_PATTERN)

_EMPTY = "must be non-empty"
_EDGES = "and must start and end with an alphanumeric character"
_NAME_RULE = (
    f"must consist of alphanumeric characters, '-', '_' or '.', {_EDGES} "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME_PATTERN}')"
)
_LABEL_KEY_RULE = (
    f"a valid label key {_NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
)
_LABEL_VALUE_RULE = (
    f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', {_EDGES} "
    f"(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '{_LABEL_VALUE_PATTERN}')"
)
_LABEL_RULE = (
    f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_EDGES} "
    f"(e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL_PATTERN}')"
)
_LABEL_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character "
    f"(e.g. 'my-name',  or 'abc-123', regex used for validation is '{_LABEL_1035_PATTERN}')"
)
_SUBDOMAIN_RULE = (
    f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', {_EDGES} "
    f"(e.g. 'example.com', regex used for validation is '{_SUBDOMAIN_PATTERN}')"
)


@lru_cache(maxsize=4096)
def dns1123_subdomain_errors(name: str) -> NameErrors:
    """Validate a DNS-1123 subdomain: the name of most objects."""
    errors = _length_errors(name, _MAX_SUBDOMAIN_LENGTH)
    return errors if _SUBDOMAIN.fullmatch(name) else (*errors, _SUBDOMAIN_RULE)


@lru_cache(maxsize=4096)
def dns1123_label_errors(name: str) -> NameErrors:
    """Validate a DNS-1123 label: the name of a namespace, a container or a pod's volume."""
    errors = _length_errors(name, _MAX_LABEL_LENGTH)
    if _LABEL.fullmatch(name):
        return errors
    return (*errors, "must not contain dots" if _SUBDOMAIN.fullmatch(name) else _LABEL_RULE)


@lru_cache(maxsize=4096)
def dns1035_label_errors(name: str) -> NameErrors:
    """Validate a DNS-1035 label: the name of a service, or the plural and kind of a CustomResourceDefinition."""
    errors = _length_errors(name, _MAX_LABEL_LENGTH)
    return errors if _LABEL_1035.fullmatch(name) else (*errors, _LABEL_1035_RULE)


def path_segment_name_errors(name: str) -> NameErrors:
    """Validate a path segment: the name of an RBAC object."""
    if name in (".", ".."):
        return (f"may not be '{name}'",)
    return tuple(f"may not contain '{character}'" for character in "/%" if character in name)


@lru_cache(maxsize=16384)
def qualified_name_errors(name: str) -> NameErrors:
    """Validate a qualified name: a label, annotation or taint key, a finalizer, a resource or a scheduling gate."""
    parts = name.split("/")
    if len(parts) > 2:
        return (_LABEL_KEY_RULE,)
    errors = []
    if len(parts) == 2:
        prefix_errors = dns1123_subdomain_errors(parts[0]) if parts[0] else (_EMPTY,)
        errors += [f"prefix part {error}" for error in prefix_errors]
    name_errors = _length_errors(parts[-1], _MAX_LABEL_LENGTH) if parts[-1] else (_EMPTY,)
    if not _NAME.fullmatch(parts[-1]):
        name_errors = (*name_errors, _NAME_RULE)
    return (*errors, *(f"name part {error}" for error in name_errors))


@lru_cache(maxsize=16384)
def label_value_errors(value: str) -> NameErrors:
    """Validate a label value."""
    errors = _length_errors(value, _MAX_LABEL_LENGTH)
    return errors if _LABEL_VALUE.fullmatch(value) else (*errors, _LABEL_VALUE_RULE)


@lru_cache(maxsize=4096)
def is_extended_resource(name: str) -> bool:
    """Whether a resource is an extended resource: not native, and valid as ``requests.<name>`` in a quota."""
    native = "/" not in name or "kubernetes.io/" in name
    return not native and not name.startswith("requests.") and not qualified_name_errors(f"requests.{name}")


def _length_errors(name: str, limit: int) -> NameErrors:
    return () if len(name.encode()) <= limit else (f"must be no more than {limit} bytes",)
