"""Recorded decisions of kube-scheduler, cluster-capacity and descheduler, read from JSON Lines files (maybe gzipped).

A case has a cluster, a configuration, and pods that are scheduled one after another, with the recorded decision for
each pod; a capacity case has one pod template and a report; a descheduling case has a policy and the evictions of one
loop. Missing namespaces, UIDs and scheduler names are defaulted as in the recording.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from kubestow.api.json_text import UNDECODABLE
from kubestow.errors import InputError
from kubestow.files import MAX_DUMP
from kubestow.rules.minors import DEFAULT_MINOR, Minor

Object = dict[str, Any]

#: Bytes of a recorded case.
_MAX_LINE = 64 << 20

#: cluster-capacity has the scheduler of its libraries, 1.34 where a case does not name another version.
_CAPACITY_MINOR = Minor(34)

_CLUSTER_SCOPED = frozenset(
    {"nodes", "namespaces", "priorityclasses", "persistentvolumes", "storageclasses", "csinodes", "csidrivers"}
    | {"volumeattachments", "resourceslices", "deviceclasses"}
)


@dataclass(frozen=True, slots=True)
class Case:
    """A recorded case. ``cluster`` has objects by plural resource name; ``expect`` has one entry per pod.

    ``minor`` is the version of the kube-scheduler that decided. ``config_error`` is its error if it rejected the
    configuration.
    """

    name: str
    area: str
    config: Object | None
    feature_gates: Mapping[str, bool]
    minor: Minor
    cluster: Mapping[str, list[Object]]
    pods: list[Object]
    expect: list[Object]
    config_error: str | None


@dataclass(frozen=True, slots=True)
class CapacityCase:
    """A recorded capacity report of cluster-capacity.

    ``cluster`` and ``minor`` are as in :class:`Case`, ``pod`` the pod template, ``max_limit`` and ``excluded_nodes``
    its options.
    ``expect`` is the report, with the choices that were the same in all runs marked as ``stable``.
    """

    name: str
    area: str
    config: Object | None
    minor: Minor
    cluster: Mapping[str, list[Object]]
    pod: Object
    max_limit: int
    excluded_nodes: frozenset[str]
    expect: Object


@dataclass(frozen=True, slots=True)
class DescheduleCase:
    """A recorded loop of the descheduler.

    ``cluster`` is as in :class:`Case`, ``now`` the moment of the loop. ``expect`` are the evictions, with what was the
    same in all runs marked as ``stable``, or the error of the policy.
    """

    name: str
    area: str
    cluster: Mapping[str, list[Object]]
    policy: Object
    now: datetime
    expect: Object


def read_cases(path: Path, minor: Minor | None = None) -> Iterator[Case | CapacityCase | DescheduleCase]:
    """Read the cases of a file in order, recorded from a ``minor`` version. Raises InputError with file and line.

    None stands for the version that the case names as ``kubernetesVersion``, or the folder of the file (``v1.33``), or
    the newest one.
    """
    of_file = minor or _minor_of_folder(path)
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        try:
            recorded = msgspec.json.decode(line)
            if "podspecs" in recorded:
                yield _capacity_case(recorded, minor or _recorded_minor(recorded, _CAPACITY_MINOR))
            else:
                yield (
                    _deschedule_case(recorded)
                    if "policy" in recorded
                    else _case(recorded, minor or _recorded_minor(recorded, of_file))
                )
        except (*UNDECODABLE, TypeError, KeyError, AttributeError, ValueError) as error:
            message = f"missing {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(str(path), f"invalid recorded case: {message}", place=f"line {number}") from None


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            size = 0
            while line := stream.readline(_MAX_LINE + 1):
                size += len(line)
                if len(line) > _MAX_LINE or size > MAX_DUMP:
                    problem = f"expected lines of at most {_MAX_LINE:,} bytes, and {MAX_DUMP:,} in all"
                    raise InputError(str(path), problem)
                yield line
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(str(path), f"cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _cluster(line: Any) -> dict[str, list[Object]]:
    return {
        plural: [_with_default_metadata(dict(obj), namespaced=plural not in _CLUSTER_SCOPED) for obj in objects or ()]
        for plural, objects in (line.get("cluster") or {}).items()
    }


def _deschedule_case(line: Any) -> DescheduleCase:
    return DescheduleCase(
        name=line["name"],
        area="deschedule",
        cluster=_cluster(line),
        policy=line["policy"],
        now=datetime.fromisoformat(line["now"]),
        expect=line["expect"],
    )


def _capacity_case(line: Any, minor: Minor) -> CapacityCase:
    pod = line["podspecs"][0]
    _ = pod["metadata"]["name"]
    return CapacityCase(
        name=line["name"],
        area="capacity",
        config=line.get("config"),
        minor=minor,
        cluster=_cluster(line),
        pod=pod,
        max_limit=line.get("maxLimit") or 0,
        excluded_nodes=frozenset(line.get("excludeNodes") or ()),
        expect=line["expect"],
    )


_FOLDER = re.compile(r"v1\.\d+")


def _minor_of_folder(path: Path) -> Minor:
    folder = path.absolute().parent.name
    return Minor.parse(folder, subject=str(path)) if _FOLDER.fullmatch(folder) else DEFAULT_MINOR


def _recorded_minor(line: Any, of_file: Minor) -> Minor:
    version = line.get("kubernetesVersion")
    return of_file if version is None else Minor.parse(version, subject="kubernetesVersion")


def _case(line: Any, minor: Minor) -> Case:
    cluster = _cluster(line)
    return Case(
        name=line["name"],
        area=line.get("area") or line["name"].partition("/")[0],
        config=line.get("config"),
        feature_gates=line.get("featureGates") or {},
        minor=minor,
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
    name = metadata["name"]
    if not isinstance(name, str):
        raise TypeError(f"metadata.name: expected a string, got {name!r}")
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
