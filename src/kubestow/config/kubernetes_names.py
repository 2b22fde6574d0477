"""What Kubernetes accepts as a name: qualified names, label values, extended resources.

A name's faults are told in the texts of Kubernetes' own messages, one for each rule that it breaks.
"""

from __future__ import annotations

import re

__all__ = ["is_extended_resource", "label_value_faults", "qualified_name_faults"]

_NAME_PATTERN = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE_PATTERN = f"({_NAME_PATTERN})?"
_SUBDOMAIN_PATTERN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LONGEST_NAME = 63
_LONGEST_SUBDOMAIN = 253
_ALPHANUMERIC = "alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
_NAME_RULE = (
    f"must consist of {_ALPHANUMERIC} (e.g. 'MyName',  or 'my.name',  or '123-abc', "
    f"regex used for validation is '{_NAME_PATTERN}')"
)
_LABEL_VALUE_RULE = (
    f"a valid label must be an empty string or consist of {_ALPHANUMERIC} "
    f"(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '{_LABEL_VALUE_PATTERN}')"
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN_PATTERN}')"
)


def qualified_name_faults(name: str) -> list[str]:
    """What is wrong with a label key or resource name such as "cpu" or "example.com/gpu"."""
    parts = name.split("/")
    if len(parts) > 2:
        return [
            f"a valid label key {_NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    prefix_faults = _prefix_faults(parts[0]) if len(parts) == 2 else []
    return prefix_faults + [f"name part {fault}" for fault in _name_part_faults(parts[-1])]


def label_value_faults(value: str) -> list[str]:
    """What is wrong with the value of a label."""
    faults = [_too_long(_LONGEST_NAME)] if len(value.encode()) > _LONGEST_NAME else []
    return faults if re.fullmatch(_LABEL_VALUE_PATTERN, value) else [*faults, _LABEL_VALUE_RULE]


def is_extended_resource(name: str) -> bool:
    """Whether a well-formed resource name is that of an extended resource: not native, and fit to have a quota."""
    native = "/" not in name or "kubernetes.io/" in name
    return not native and not name.startswith("requests.") and not qualified_name_faults(f"requests.{name}")


def _name_part_faults(name: str) -> list[str]:
    faults = []
    if not name:
        faults.append("must be non-empty")
    elif len(name.encode()) > _LONGEST_NAME:
        faults.append(_too_long(_LONGEST_NAME))
    return faults if re.fullmatch(_NAME_PATTERN, name) else [*faults, _NAME_RULE]


def _prefix_faults(prefix: str) -> list[str]:
    if not prefix:
        return ["prefix part must be non-empty"]
    faults = [_too_long(_LONGEST_SUBDOMAIN)] if len(prefix.encode()) > _LONGEST_SUBDOMAIN else []
    if not re.fullmatch(_SUBDOMAIN_PATTERN, prefix):
        faults.append(_SUBDOMAIN_RULE)
    return [f"prefix part {fault}" for fault in faults]


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} bytes"
