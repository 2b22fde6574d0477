"""A cluster as read from files: nodes, pods and all other objects that decisions depend on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from kubestow import gc_tuning
from kubestow.api.core import Node, Pod
from kubestow.api.custom import CustomObject
from kubestow.api.meta import convert, decode, without_nulls
from kubestow.cluster.pods.shapes import Shape, Shapes
from kubestow.engine.input import kinds
from kubestow.engine.input.admission import Admission
from kubestow.engine.input.documents import InputProblem, Problems, SourceObject, read_objects
from kubestow.engine.input.object_defaults import with_default_class
from kubestow.errors import InputError, InvalidObject
from kubestow.reports.model import counted
from kubestow.rules.pods import is_terminal
from kubestow.rules.requests import limits_by_spec
from kubestow.scheduling.events.resources import NODES, PODS
from kubestow.scheduling.interfaces import Resource

_UPDATE_TIME = re.compile(rb'"updateTime": ?"([^"]+)"')


class _Heartbeat(msgspec.Struct, rename="camel", frozen=True):
    last_heartbeat_time: str | None = None


class _Heartbeats(msgspec.Struct, frozen=True):
    conditions: list[_Heartbeat] = []


class _NodeHeartbeats(msgspec.Struct, frozen=True):
    """When the conditions of a node were confirmed."""

    status: _Heartbeats = _Heartbeats()


def _moment(text: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


@dataclass(slots=True)
class InputSummary:
    """What was read: objects by kind, custom resources, kinds that decisions do not read, finished pods, problems.

    ``left_out`` are objects of kinds that decisions read, by what they are and why they do not count.
    """

    read: Counter[str] = field(default_factory=Counter)
    custom: Counter[str] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    finished_pods: int = 0
    problems: tuple[InputProblem, ...] = ()

    def lines(self) -> Iterator[str]:
        """The summary for people, without the problems themselves."""
        yield "read " + (_counts(self.read) or "nothing")
        if self.finished_pods:
            yield "left out " + counted(self.finished_pods, "finished pod")
        if self.left_out:
            yield f"left out {_counts(self.left_out)}"
        if self.custom:
            yield f"kept {_counts(self.custom)} for plugins that read them"
        if self.ignored:
            yield f"ignored {_counts(self.ignored)}: scheduling does not depend on them"
        if self.problems:
            yield f"left out {counted(len(self.problems), 'object')} with problems"


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in sorted(counter.items()))


@dataclass(slots=True)
class ClusterObjects:
    """Nodes, pods, and the other objects that the scheduler reads, in the order in which they were read.

    Pods keep their nodes; those without one are pending. Finished pods are left out. ``sources`` are the same objects
    with all their fields, for output. ``custom_resources`` are the objects that plugins may read: custom resources, and
    those that admission reads. ``newest`` is the newest time of the objects of a cluster that was made of another one.
    ``server_version`` is that of the cluster's API server, such as ``v1.36.2``; "" if it is not known. ``listed`` are
    the resourceVersions of the lists that were read, by API path, "" for a kind that the API server does not serve;
    None if it is not known which kinds were looked for.
    """

    nodes: list[Node] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    objects: list[Any] = field(default_factory=list)
    sources: list[SourceObject] = field(default_factory=list)
    custom_resources: list[SourceObject] = field(default_factory=list)
    admission: Admission = field(default_factory=Admission)
    summary: InputSummary = field(default_factory=InputSummary)
    newest: datetime | None = None
    server_version: str = ""
    listed: Mapping[str, str] | None = None

    @classmethod
    def load(cls, *paths: str | Path, strict: bool = False) -> ClusterObjects:
        """Read a cluster from files and folders: JSON or YAML, as ``kubectl get -A -o json`` prints it.

        Objects that cannot be used are left out and listed in ``summary.problems``. Raises InputError for a file that
        cannot be read or does not parse, for input without nodes, and with ``strict`` for the first problem.
        """
        problems = Problems(strict=strict)
        return cls.of_sources(read_objects(paths, problems), problems, subject=", ".join(map(str, paths)))

    @classmethod
    def of_sources(cls, sources: Iterable[SourceObject], problems: Problems, *, subject: str) -> ClusterObjects:
        """A cluster of encoded objects, with the ``problems`` found while they were read. Raises InputError."""
        with gc_tuning.paused():
            cluster = _Loader(problems).load(sources)
        cluster.summary.problems = tuple(problems)
        if not cluster.nodes:
            problem, found = "has no nodes, expected the output of kubectl get nodes,pods -A -o json", list(problems)
            also = f"; the first of {counted(len(found), 'problem')}: {found[0]}" if found else ""
            raise InputError(subject, problem + also)
        return cluster

    @classmethod
    def of(cls, nodes: Iterable[Node], pods: Iterable[Pod] = (), objects: Iterable[Any] = ()) -> ClusterObjects:
        """A cluster of decoded objects."""
        return cls(list(nodes), list(pods), list(objects))

    def altered(
        self,
        *,
        nodes: Iterable[Node] | None = None,
        pods: Iterable[Pod] | None = None,
        objects: Iterable[Any] | None = None,
        custom_resources: Iterable[SourceObject] | None = None,
    ) -> ClusterObjects:
        """This cluster with other nodes, pods, objects or custom resources, at the same time; without ``sources``."""
        return replace(
            self,
            nodes=self.nodes if nodes is None else list(nodes),
            pods=self.pods if pods is None else list(pods),
            objects=self.objects if objects is None else list(objects),
            custom_resources=self.custom_resources if custom_resources is None else list(custom_resources),
            sources=[],
            newest=self._newest(),
        )

    def time(self, otherwise: datetime) -> datetime:
        """When the cluster was as it is here: the newest time that its objects have; another time if they have none.

        Plugins compare reports of load with it. Looked at are the heartbeats of nodes, the starts of pods, and the
        updates of custom resources.
        """
        return self._newest() or otherwise

    def _newest(self) -> datetime | None:
        if self.newest is not None:
            return self.newest
        times: list[datetime | None] = [pod.status.start_time for pod in self.pods]
        for source in self.sources:
            if source.kind == "Node" and b"lastHeartbeatTime" in bytes(source.raw):
                times += _heartbeats(source.raw)
        for source in self.custom_resources:
            times += [_moment(text.decode()) for text in _UPDATE_TIME.findall(bytes(source.raw))]
        return max((time for time in times if time is not None), default=None)

    def __repr__(self) -> str:
        """The numbers of nodes and pods."""
        placed = sum(1 for pod in self.pods if pod.spec.node_name)
        pods = f"{placed:,} placed and {counted(len(self.pods) - placed, 'pending pod')}"
        return f"<Cluster: {counted(len(self.nodes), 'node')}, {pods}>"


def _heartbeats(raw: bytes | msgspec.Raw) -> list[datetime | None]:
    """The moments of a node's heartbeats, none if one is not text."""
    try:
        conditions = msgspec.json.decode(raw, type=_NodeHeartbeats).status.conditions
    except msgspec.ValidationError:
        return []
    return [_moment(condition.last_heartbeat_time) for condition in conditions]


def custom_objects(sources: Iterable[SourceObject], kinds_read: Iterable[type[CustomObject]]) -> list[Any]:
    """The objects of the kinds that plugins read. Raises InputError for one that cannot be decoded."""
    by_type = {kind.api_type(): kind for kind in kinds_read}
    found = []
    for source in sources:
        kind = by_type.get(kinds.type_of(source))
        if kind is not None:
            try:
                obj = decode(kind, source.raw)
            except InvalidObject as error:
                raise InputError(source.subject, f"invalid {source.kind}: {error}", place=source.place) from None
            if kind.is_namespaced:
                obj = kinds.with_identity(obj, source.kind, obj.metadata.namespace or "default")
            found.append(obj)
    return found


class _Loader:
    """Decodes and checks the objects of one input."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._cluster = ClusterObjects()
        #: Where each object was first seen, by kind, namespace and name.
        self._places: dict[tuple[str, str, str], SourceObject] = {}
        #: Pods are checked against nodes and priority classes, which may come after them.
        self._pods: list[tuple[Pod, SourceObject]] = []
        self._shapes = Shapes()
        self._shapes_in_use: set[Shape] = set()

    def load(self, sources: Iterable[SourceObject]) -> ClusterObjects:
        for source in sources:
            self._load(source)
            if source.server_version:
                self._cluster.server_version = source.server_version
            if source.listed is not None:
                self._cluster.listed = source.listed
        names = {node.metadata.name for node in self._cluster.nodes}
        for pod, source in self._pods:
            self._put_pod(pod, source, names)
        self._cluster.objects = with_default_class(self._cluster.objects, self._cluster.objects)
        return self._cluster

    def _load(self, source: SourceObject) -> None:
        summary = self._cluster.summary
        resource = kinds.resource_of(source)
        if resource is not None:
            self._load_object(source, resource)
        elif kinds.type_of(source) in kinds.ADMISSION_KINDS:
            try:
                self._cluster.admission.add(source.kind, without_nulls(source.manifest))
            except (InvalidObject, AttributeError, TypeError, ValueError) as error:
                self._report(source, f"invalid {source.kind}: {error}")
            else:
                summary.read[source.kind] += 1
                self._cluster.custom_resources.append(source)
        elif kinds.type_of(source) not in kinds.WORKLOAD_KINDS and (version := kinds.expected_version(source)):
            self._report(source, f"{source.kind} of version {source.api_version}, expected {version}")
        elif kinds.may_be_read_by_plugins(source):
            self._cluster.custom_resources.append(source)
            summary.custom[source.kind] += 1
        else:
            summary.ignored[source.kind] += 1

    def _load_object(self, source: SourceObject, resource: Resource) -> None:
        obj = kinds.decoded(source, resource, self._problems)
        if obj is None or self._is_duplicate(obj, source):
            return
        if resource == PODS:
            if is_terminal(obj.status.phase):
                self._cluster.summary.finished_pods += 1
            else:
                self._load_pod(obj, source)
            return
        (self._cluster.nodes if resource == NODES else self._cluster.objects).append(obj)
        self._keep(source)

    def _keep(self, source: SourceObject) -> None:
        self._cluster.sources.append(source)
        self._cluster.summary.read[source.kind] += 1

    def _is_duplicate(self, obj: Any, source: SourceObject) -> bool:
        metadata = obj.metadata
        key = (source.kind + source.api_version, metadata.namespace, metadata.name)
        first = self._places.setdefault(key, source)
        if first is source:
            return False
        name = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
        self._report(source, f"duplicate {source.kind} {name}, first in {first.subject} {first.place}".rstrip())
        return True

    def _put_pod(self, pod: Pod, source: SourceObject, nodes: set[str]) -> None:
        if pod.spec.node_name and pod.spec.node_name not in nodes:
            self._report(source, f"Pod {pod.key} is on node {pod.spec.node_name}, which is not in the input")
            return
        if not pod.spec.scheduler_name:  # a manifest, not an object from an API server
            try:
                manifest = without_nulls(source.manifest)
                self._cluster.admission.admit(manifest, pod.metadata.namespace)
                pod = self._shared(msgspec.structs.replace(convert(Pod, manifest), metadata=pod.metadata))
            except InvalidObject as error:
                self._report(source, f"invalid Pod {pod.key}: {error}")
                return
        self._cluster.pods.append(pod)
        self._keep(source)

    def _load_pod(self, pod: Pod, source: SourceObject) -> None:
        """Keep a pod from an API server, sharing with its copies; a manifest as it is: its class may come later."""
        spec = pod.spec
        self._cluster.admission.learn_priority(spec.priority_class_name, spec.priority, spec.preemption_policy)
        try:
            self._pods.append((self._shared(pod) if spec.scheduler_name else pod, source))
        except InvalidObject as error:
            self._report(source, f"invalid Pod {pod.key}: {error}")

    def _shared(self, pod: Pod) -> Pod:
        """The pod with what it has in common with its copies: less than half the memory. Raises InvalidQuantity."""
        info = self._shapes.info(pod)
        if info.shape not in self._shapes_in_use:
            limits_by_spec(pod)  # checks the quantities; those of requests are checked with the shape
            self._shapes_in_use.add(info.shape)
        return info.pod

    def _report(self, source: SourceObject, text: str) -> None:
        self._problems.report(source.subject, source.place, text)
