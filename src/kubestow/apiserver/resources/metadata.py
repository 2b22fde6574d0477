"""The rules of ``metadata``, the same for every kind: names, labels, annotations, finalizers, what is immutable."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from kubestow.apiserver.statuses import Cause, invalid_value, required_value, too_long

__all__ = ["label_problem", "ordered", "subdomain_problem", "validate", "validate_labels", "validate_update"]

Object = dict[str, Any]

MAX_ANNOTATION_BYTES = 256 * 1024

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")

_SUBDOMAIN_PROBLEM = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and"
    " end with an alphanumeric character (e.g. 'example.com', regex used for validation is"
    " '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_PROBLEM = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with"
    " an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is"
    " '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL_1035_PROBLEM = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character,"
    " and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is"
    " '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_NAME_PART_PROBLEM = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric"
    " character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is"
    " '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_LABEL_VALUE_PROBLEM = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and"
    " end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is"
    " '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
#: The order in which a server writes metadata.
_ORDER = [
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
]


def ordered(metadata: Object) -> Object:
    """The same metadata in the order in which a server writes it."""
    return {key: metadata[key] for key in _ORDER if key in metadata}


@lru_cache(maxsize=4096)
def subdomain_problem(name: str) -> str:
    if len(name) > 253:
        return "must be no more than 253 characters"
    return "" if _SUBDOMAIN.fullmatch(name) else _SUBDOMAIN_PROBLEM


@lru_cache(maxsize=4096)
def label_problem(name: str) -> str:
    if len(name) > 63:
        return "must be no more than 63 bytes"
    return "" if _LABEL.fullmatch(name) else _LABEL_PROBLEM


@lru_cache(maxsize=4096)
def label_1035_problem(name: str) -> str:
    if len(name) > 63:
        return "must be no more than 63 bytes"
    return "" if _LABEL_1035.fullmatch(name) else _LABEL_1035_PROBLEM


def path_segment_problem(name: str) -> str:
    """Names of RBAC objects may be anything that fits between two slashes."""
    if name in (".", ".."):
        return f"may not be '{name}'"
    for character in "/%":
        if character in name:
            return f"may not contain '{character}'"
    return ""


@lru_cache(maxsize=16384)
def qualified_name_problem(key: str) -> str:
    """What is wrong with a label key, annotation key, finalizer, resource or gate name."""
    prefix, slash, name = key.rpartition("/")
    if slash and not prefix:
        return "prefix part must be non-empty"
    if slash and subdomain_problem(prefix):
        return f"prefix part {subdomain_problem(prefix)}"
    if not name:
        return f"name part must be non-empty; {_NAME_PART_PROBLEM}"
    if len(name) > 63:
        return "name part must be no more than 63 bytes"
    return "" if _QUALIFIED.fullmatch(name) else _NAME_PART_PROBLEM


@lru_cache(maxsize=16384)
def label_value_problem(value: str) -> str:
    if len(value) > 63:
        return "must be no more than 63 bytes"
    return "" if _LABEL_VALUE.fullmatch(value) else _LABEL_VALUE_PROBLEM


def validate_labels(labels: dict[str, str], path: str) -> list[Cause]:
    causes: list[Cause] = []
    for key, value in labels.items():
        if problem := qualified_name_problem(key):
            causes.append(invalid_value(path, key, problem))
        if problem := label_value_problem(value):
            causes.append(invalid_value(path, value, problem))
    return causes


def validate(metadata: Object, *, name_problem: str) -> list[Cause]:
    """``name_problem`` is the kind's verdict on the name."""
    causes: list[Cause] = []
    name = metadata.get("name", "")
    if not name:
        causes.append(required_value("metadata.name", "name or generateName is required"))
    elif name_problem:
        causes.append(invalid_value("metadata.name", name, name_problem))
    causes += validate_labels(metadata.get("labels") or {}, "metadata.labels")
    causes += _validate_annotations(metadata.get("annotations") or {})
    for finalizer in metadata.get("finalizers") or ():
        if problem := qualified_name_problem(finalizer):
            causes.append(invalid_value("metadata.finalizers", finalizer, problem))
    causes += _validate_owners(metadata.get("ownerReferences") or ())
    return causes


def _validate_annotations(annotations: dict[str, str]) -> list[Cause]:
    causes: list[Cause] = []
    size = 0
    for key, value in annotations.items():
        if problem := qualified_name_problem(key.lower()):
            causes.append(invalid_value("metadata.annotations", key, problem))
        size += len(key.encode()) + len(value.encode())
    if size > MAX_ANNOTATION_BYTES:
        causes.append(too_long("metadata.annotations", MAX_ANNOTATION_BYTES))
    return causes


def _validate_owners(owners: Iterable[Object]) -> list[Cause]:
    causes: list[Cause] = []
    controllers = 0
    for index, owner in enumerate(owners):
        path = f"metadata.ownerReferences[{index}]"
        for field, shown in (("apiVersion", "version"), ("kind", "kind"), ("name", "name"), ("uid", "uid")):
            if not owner.get(field):
                causes.append(invalid_value(f"{path}.{field}", "", f"{shown} must not be empty"))
        controllers += bool(owner.get("controller"))
    if controllers > 1:
        causes.append(
            invalid_value(
                "metadata.ownerReferences", list(owners), "Only one reference can have Controller set to true"
            )
        )
    return causes


def validate_update(new: Object, old: Object) -> list[Cause]:
    """``new`` and ``old`` are metadata; an absent immutable field was filled in from the old one before."""
    causes: list[Cause] = []
    for field in ("name", "namespace", "uid", "creationTimestamp"):
        if new.get(field) != old.get(field):
            causes.append(invalid_value(f"metadata.{field}", new.get(field), "field is immutable"))
            if field == "uid":
                # The real server checks the uid twice and lists both.
                causes.append(causes[-1])
    if old.get("deletionTimestamp"):
        added = [name for name in new.get("finalizers") or () if name not in (old.get("finalizers") or ())]
        if added:
            problem = "no new finalizers can be added if the object is being deleted, found new finalizers"
            shown = "[]string{" + ", ".join(f'"{name}"' for name in added) + "}"
            causes.append(Cause("FieldValueForbidden", f"Forbidden: {problem} {shown}", "metadata.finalizers"))
    return causes
