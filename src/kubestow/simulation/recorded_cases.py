"""Recorded decisions of kube-scheduler, read from JSON Lines files (optionally gzipped).

A case has a cluster, a configuration, and pods that are scheduled one after another, with the recorded decision for
each pod. Missing namespaces, UIDs and scheduler names are defaulted as in the recording.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kubestow.errors import InputError

__all__ = ["Case", "read_cases"]

Object = dict[str, Any]

_CLUSTER_SCOPED = frozenset(
    {
        "nodes",
        "namespaces",
        "priorityclasses",
        "persistentvolumes",
        "storageclasses",
        "csinodes",
        "csidrivers",
        "volumeattachments",
        "resourceslices",
        "deviceclasses",
    }
)


@dataclass(frozen=True, slots=True)
class Case:
    """A recorded case. ``cluster`` has objects by plural resource name; ``expect`` has one entry per pod.

    ``config_error`` is kube-scheduler's error if it rejected the configuration.
    """

    name: str
    area: str
    config: Object | None
    feature_gates: Mapping[str, bool]
    cluster: Mapping[str, list[Object]]
    pods: list[Object]
    expect: list[Object]
    config_error: str | None


def read_cases(path: Path) -> Iterator[Case]:
    """Read the cases of a file in order. Raises InputError with file and line."""
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        try:
            yield _case(msgspec.json.decode(line))
        except (msgspec.DecodeError, TypeError, KeyError, AttributeError) as error:
            message = f"missing {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(str(path), f"invalid recorded case: {message}", place=f"line {number}") from None


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            yield from stream
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(str(path), f"cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _case(line: Any) -> Case:
    cluster = {
        plural: [_with_default_metadata(dict(obj), namespaced=plural not in _CLUSTER_SCOPED) for obj in objects or ()]
        for plural, objects in (line.get("cluster") or {}).items()
    }
    return Case(
        name=line["name"],
        area=line.get("area") or line["name"].partition("/")[0],
        config=line.get("config"),
        feature_gates=line.get("featureGates") or {},
        cluster={
            plural: list(map(_with_default_scheduler, objs)) if plural == "pods" else objs
            for plural, objs in cluster.items()
        },
        pods=[
            _with_default_scheduler(_with_default_metadata(dict(pod), namespaced=True))
            for pod in line.get("pods") or ()
        ],
        expect=line["expect"],
        config_error=line.get("config_error"),
    )


def _with_default_metadata(obj: Object, *, namespaced: bool) -> Object:
    metadata = dict(obj.get("metadata") or {})
    name = metadata.get("name", "")
    if namespaced:
        metadata["namespace"] = metadata.get("namespace") or "default"
    if not metadata.get("uid"):
        metadata["uid"] = f"uid-{metadata['namespace']}-{name}" if namespaced else f"uid-{name}"
    obj["metadata"] = metadata
    return obj


def _with_default_scheduler(pod: Object) -> Object:
    spec = dict(pod.get("spec") or {})
    spec["schedulerName"] = spec.get("schedulerName") or "default-scheduler"
    return pod | {"spec": spec}
