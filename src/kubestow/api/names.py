"""What Kubernetes accepts as a name: of objects, of labels and their values, of resources.

A name's faults are told in the texts of Kubernetes' own messages, one for each rule that it breaks; a good name has
none. Names repeat endlessly, so what was found of each is remembered. Lengths are those of UTF-8, in bytes.
"""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = [
    "Faults",
    "is_extended_resource",
    "label_1035_faults",
    "label_faults",
    "label_value_faults",
    "path_segment_faults",
    "qualified_name_faults",
    "subdomain_faults",
]

Faults = tuple[str, ...]

_LONGEST_LABEL = 63
_LONGEST_SUBDOMAIN = 253
_NAME_PATTERN = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE_PATTERN = f"({_NAME_PATTERN})?"
_LABEL_PATTERN = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_1035_PATTERN = "[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_PATTERN = rf"{_LABEL_PATTERN}(\.{_LABEL_PATTERN})*"
_NAME, _LABEL_VALUE = re.compile(_NAME_PATTERN), re.compile(_LABEL_VALUE_PATTERN)
_LABEL, _LABEL_1035 = re.compile(_LABEL_PATTERN), re.compile(_LABEL_1035_PATTERN)
_SUBDOMAIN = re.compile(_SUBDOMAIN_PATTERN)

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
def subdomain_faults(name: str) -> Faults:
    """What is wrong with the name of most objects."""
    faults = _length_faults(name, _LONGEST_SUBDOMAIN)
    return faults if _SUBDOMAIN.fullmatch(name) else (*faults, _SUBDOMAIN_RULE)


@lru_cache(maxsize=4096)
def label_faults(name: str) -> Faults:
    """What is wrong with the name of a namespace, a container or a volume of a pod."""
    faults = _length_faults(name, _LONGEST_LABEL)
    if _LABEL.fullmatch(name):
        return faults
    return (*faults, "must not contain dots" if _SUBDOMAIN.fullmatch(name) else _LABEL_RULE)


@lru_cache(maxsize=4096)
def label_1035_faults(name: str) -> Faults:
    """What is wrong with the name of a service, or with one that a definition of custom resources gives."""
    faults = _length_faults(name, _LONGEST_LABEL)
    return faults if _LABEL_1035.fullmatch(name) else (*faults, _LABEL_1035_RULE)


def path_segment_faults(name: str) -> Faults:
    """What is wrong with the name of an RBAC object, which may be anything that fits between two slashes."""
    if name in (".", ".."):
        return (f"may not be '{name}'",)
    return tuple(f"may not contain '{character}'" for character in "/%" if character in name)


@lru_cache(maxsize=16384)
def qualified_name_faults(name: str) -> Faults:
    """What is wrong with the key of a label, annotation or taint, a finalizer, or the name of a resource or gate."""
    parts = name.split("/")
    if len(parts) > 2:
        return (_LABEL_KEY_RULE,)
    prefix_faults = _prefix_faults(parts[0]) if len(parts) == 2 else ()
    return prefix_faults + tuple(f"name part {fault}" for fault in _name_part_faults(parts[-1]))


@lru_cache(maxsize=16384)
def label_value_faults(value: str) -> Faults:
    """What is wrong with the value of a label."""
    faults = _length_faults(value, _LONGEST_LABEL)
    return faults if _LABEL_VALUE.fullmatch(value) else (*faults, _LABEL_VALUE_RULE)


@lru_cache(maxsize=4096)
def is_extended_resource(name: str) -> bool:
    """Whether a resource is an extended one: not native, and fit to have a quota."""
    native = "/" not in name or "kubernetes.io/" in name
    return not native and not name.startswith("requests.") and not qualified_name_faults(f"requests.{name}")


def _prefix_faults(prefix: str) -> Faults:
    faults = subdomain_faults(prefix) if prefix else ("must be non-empty",)
    return tuple(f"prefix part {fault}" for fault in faults)


def _name_part_faults(name: str) -> Faults:
    faults = _length_faults(name, _LONGEST_LABEL) if name else ("must be non-empty",)
    return faults if _NAME.fullmatch(name) else (*faults, _NAME_RULE)


def _length_faults(name: str, limit: int) -> Faults:
    return () if len(name.encode()) <= limit else (f"must be no more than {limit} bytes",)
