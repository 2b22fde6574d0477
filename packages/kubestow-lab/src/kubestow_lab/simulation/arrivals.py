"""The pods of a workload with the times at which they arrive and the durations for which they run."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from kubestow import gc_tuning
from kubestow.api.core import Pod, PodResourceClaimStatus, PodStatus
from kubestow.api.formats.duration import Duration
from kubestow.api.meta import ObjectMeta, convert, decode, without_nulls
from kubestow.engine.cluster_api.replacements import replacing_controller
from kubestow.engine.input import kinds
from kubestow.engine.input.admission import Refusals
from kubestow.engine.input.cluster_objects import ClusterObjects, InputSummary
from kubestow.engine.input.documents import Problems, SourceObject, read_objects
from kubestow.engine.input.object_defaults import with_default_class
from kubestow.errors import InputError, InvalidObject
from kubestow.plugins.registry import find_workload_kinds
from kubestow.reports.model import counted
from kubestow.rules.claims import ephemeral_claim, resource_claim
from kubestow.rules.owners import generated_name, generated_suffix
from kubestow.scheduling.events.resources import NODES, PODS
from kubestow_lab.simulation.expansion import Expansion, Replica, expand
from kubestow_lab.workloads.workload import DURATION, Object

#: More names than this are not in a remark.
_NAMED = 8
#: Pod annotation with the time of its arrival, such as ``"90s"``; pods without it arrive at the start.
ARRIVAL = "kubestow.dev/arrival"


@dataclass(frozen=True, slots=True)
class JointStart:
    """Pods that work together, such as the workers of a training job: none begins before ``size`` of them are bound."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod that arrives at ``time`` and runs for ``duration`` once it is bound; seconds, None for ever.

    With a ``joint_start``, it runs from when all of its pods are bound. ``manifest`` has all fields of the pod but its
    name; copies share it. ``is_replacement``: it was created for a pod that was evicted.
    """

    pod: Pod
    time: float
    duration: float | None
    manifest: Object
    is_replacement: bool = False
    joint_start: JointStart | None = None


@dataclass(frozen=True, slots=True)
class ArrivingJob:
    """A job with its namespace set that arrives at ``time``, in seconds, at queues that decide when it starts."""

    manifest: Object
    time: float


@dataclass(frozen=True, slots=True)
class RefusedPods:
    """Pods of a workload, such as ``Deployment default/web``, that are invalid or that admission refuses, and why."""

    owner: str
    count: int
    message: str

    def __str__(self) -> str:
        return f"{self.owner}: {counted(self.count, 'pod')} refused: {self.message}"


@dataclass(slots=True)
class Arrivals:
    """Pods in the order in which they arrive, and other objects that exist from the start.

    ``custom_resources`` are the objects that plugins may read, as those of a cluster. ``refused`` are pods that the API
    server would not create. ``not_expanded`` are workloads of kinds whose controllers are not known here.
    ``assumptions`` say what was assumed where a trace says nothing. ``jobs`` wait in queues before they have pods.
    """

    pods: list[Arrival] = field(default_factory=list)
    objects: list[Any] = field(default_factory=list)
    custom_resources: list[SourceObject] = field(default_factory=list)
    summary: InputSummary = field(default_factory=InputSummary)
    attribution: str = ""
    refused: list[RefusedPods] = field(default_factory=list)
    not_expanded: list[str] = field(default_factory=list)
    assumptions: str = ""
    jobs: list[ArrivingJob] = field(default_factory=list)

    @property
    def remarks(self) -> Iterator[str]:
        """What was assumed, and what pods the workload lacks, for people."""
        if self.assumptions:
            yield f"assumed where the trace says nothing: {self.assumptions}"
        if self.not_expanded:
            names = ", ".join(self.not_expanded[:_NAMED]) + (", …" if len(self.not_expanded) > _NAMED else "")
            yield f"{counted(len(self.not_expanded), 'workload was', 'workloads were')} not expanded into pods: {names}"

    @property
    def refused_count(self) -> int:
        """How many pods are refused."""
        return sum(each.count for each in self.refused)

    @classmethod
    def load(
        cls,
        *paths: str | Path,
        cluster: ClusterObjects,
        strict: bool = False,
        queued: Callable[[Object], bool] = lambda workload: False,
    ) -> Arrivals:
        """Read a workload from manifests: pods, and controllers, whose pods are created as they would create them.

        Objects that belong to a controller of the same input are left to it. Pods are new: nodes and statuses are
        dropped. Nodes, priority classes and pods that the workload refers to are those of ``cluster``. Workloads that
        are ``queued`` are kept as jobs, without pods. Raises InputError for a file that cannot be read or does not
        parse, for input without pods, and with ``strict`` for the first problem.
        """
        problems = Problems(strict=strict)
        sources = read_objects(paths, problems)
        subject = ", ".join(map(str, paths))
        return cls.of_sources(sources, problems, cluster=cluster, subject=subject, queued=queued)

    @classmethod
    def of_sources(
        cls,
        sources: Iterable[SourceObject],
        problems: Problems,
        *,
        cluster: ClusterObjects,
        subject: str,
        queued: Callable[[Object], bool] = lambda workload: False,
    ) -> Arrivals:
        """A workload of encoded objects, with the ``problems`` found while they were read. Raises as :meth:`load`."""
        with gc_tuning.paused():
            arrivals = _Loader(cluster, problems, queued).load(list(sources))
        arrivals.summary.problems = tuple(problems)
        if not arrivals.pods and not arrivals.jobs and not problems:
            problem = "; ".join(("has no pods, expected pods or workload controllers", *arrivals.remarks))
            raise InputError(subject, problem)
        return arrivals

    def __repr__(self) -> str:
        """The number of pods."""
        return f"<Arrivals: {counted(len(self.pods), 'pod')}>"


class _Named(msgspec.Struct):
    """An object of any kind."""

    metadata: ObjectMeta = ObjectMeta()


class _CountedSpec(msgspec.Struct, frozen=True):
    replicas: int | None = None
    parallelism: int | None = None


class _Counted(msgspec.Struct):
    """A workload with a number of pods."""

    spec: _CountedSpec = _CountedSpec()


class _Loader:
    """Expands and admits the objects of one workload."""

    def __init__(
        self, cluster: ClusterObjects, problems: Problems, queued: Callable[[Object], bool] = lambda workload: False
    ) -> None:
        self._cluster, self._problems, self._queued = cluster, problems, queued
        self._arrivals = Arrivals()
        self._names = {(pod.metadata.namespace, pod.metadata.name) for pod in cluster.pods}
        self._known = {(type(o), o.metadata.namespace, o.metadata.name) for o in cluster.objects}
        self._node_manifests: list[Object] | None = None
        self._refusals = Refusals(cluster.admission, cluster.pods)
        self._sources: Sequence[SourceObject] = ()
        self._custom_resources: dict[tuple[str, str, str], Object] | None = None

    def load(self, sources: Sequence[SourceObject]) -> Arrivals:
        self._sources = sources
        for source in sources:
            if kinds.type_of(source) in kinds.ADMISSION_KINDS:
                self._guarded(source, self._add_to_admission)
        owners = {key for source in sources if (key := _controller_key(source)) is not None}
        for source in sources:
            self._load(source, owners)
        self._arrivals.pods.sort(key=lambda arrival: arrival.time)
        objects = self._arrivals.objects
        self._arrivals.objects = with_default_class(objects, (*self._cluster.objects, *objects))
        return self._arrivals

    def _load(self, source: SourceObject, owners: set[tuple[str, str, str]]) -> None:
        resource, type_name = kinds.resource_of(source), kinds.type_of(source)
        if resource == PODS or type_name in kinds.WORKLOAD_KINDS or type_name in find_workload_kinds():
            self._guarded(source, lambda manifest, source: self._expand(manifest, source, owners))
        elif type_name in kinds.ADMISSION_KINDS:
            return
        elif resource == NODES:
            self._arrivals.summary.left_out["Node (the cluster's are used)"] += 1
        elif resource is None:
            if _is_created_anew(source, owners):
                self._arrivals.summary.left_out[f"{source.kind} of a controller in the same input"] += 1
            else:
                self._load_unread(source)
        else:
            obj = kinds.decoded(source, resource, self._problems)
            if obj is None:
                return
            if self._keep(obj):
                self._arrivals.summary.read[source.kind] += 1
            else:
                name = "/".join(filter(None, (obj.metadata.namespace, obj.metadata.name)))
                self._report(source, f"{source.kind} {name} exists already")

    def _load_unread(self, source: SourceObject) -> None:
        """An object of a kind that the scheduler itself does not read."""
        if version := kinds.expected_version(source):
            self._report(source, f"{source.kind} of version {source.api_version}, expected {version}")
        elif kinds.may_be_read_by_plugins(source):
            self._arrivals.custom_resources.append(source)
            self._arrivals.summary.custom[source.kind] += 1
            if _is_workload(source.manifest.get("spec")):
                self._arrivals.not_expanded.append(_owner(source))
        else:
            self._arrivals.summary.ignored[source.kind] += 1

    def _guarded(self, source: SourceObject, load: Any) -> None:
        """Load one manifest; whatever is wrong with its structure is a problem of this object alone."""
        try:
            load(without_nulls(source.manifest), source)
            return
        except InvalidObject as error:
            problem = f"invalid {source.kind}: {error}"
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            problem = f"invalid {source.kind}: {type(error).__name__}: {error}"
        self._report(source, problem)
        if kinds.type_of(source) not in kinds.ADMISSION_KINDS:
            self._arrivals.refused.append(RefusedPods(_owner(source), _pod_count(source), problem))

    def _add_to_admission(self, manifest: Object, source: SourceObject) -> None:
        self._cluster.admission.add(source.kind, manifest)
        self._arrivals.custom_resources.append(source)
        self._arrivals.summary.read[source.kind] += 1

    def _expand(self, manifest: Object, source: SourceObject, owners: set[tuple[str, str, str]]) -> None:
        if not convert(_Named, manifest).metadata.name:
            raise InvalidObject("required value", path="metadata.name")
        metadata = manifest["metadata"]
        namespace = metadata["namespace"] = metadata.get("namespace") or "default"
        references = metadata.get("ownerReferences") or ()
        if any((owner.get("kind"), namespace, owner.get("name")) in owners for owner in references):
            self._arrivals.summary.left_out[f"{source.kind} of a controller in the same input"] += 1
            return
        contributed = find_workload_kinds().get(kinds.type_of(source))
        if self._queued(manifest):
            time = seconds_in(metadata.get("annotations") or {}, ARRIVAL) or 0.0
            self._arrivals.jobs.append(ArrivingJob(manifest, time))
        elif contributed is not None:
            self._put_objects(contributed(manifest, self._custom_resource), source)
        else:
            for expansion in _expansions(manifest, self._nodes):
                self._put_expansion(expansion, namespace, source)
        if source.kind in ("ReplicaSet", "StatefulSet", "ReplicationController", "Job") and contributed is None:
            self._put_manifest(manifest, source)
        self._arrivals.summary.read[source.kind] += 1

    def _custom_resource(self, kind: str, namespace: str, name: str) -> Object | None:
        """A custom resource of the workload or the cluster, by kind, namespace and name."""
        if self._custom_resources is None:
            self._custom_resources = {}
            for source in (*self._cluster.custom_resources, *self._sources):
                if kinds.is_custom(source):
                    manifest = source.manifest
                    metadata = manifest.get("metadata") or {}
                    key = (source.kind, metadata.get("namespace") or "", metadata.get("name") or "")
                    self._custom_resources[key] = manifest
        found = self._custom_resources
        return found.get((kind, namespace, name)) or (found.get((kind, "", name)) if namespace == "default" else None)

    def _put_objects(self, objects: Iterable[Object], source: SourceObject) -> None:
        """The objects that another project's controller creates: pods, and custom resources."""
        for obj in objects:
            metadata = obj["metadata"]
            if obj["kind"] == "Pod":
                self._put_expansion(Expansion(obj, [Replica(metadata["name"], {})]), metadata["namespace"], source)
            elif (obj["apiVersion"], obj["kind"]) in kinds.WORKLOAD_KINDS:
                self._put_manifest(obj, source)  # its pods are among the others
            else:
                raw = msgspec.json.encode(obj)
                self._load_unread(SourceObject(obj["apiVersion"], obj["kind"], raw, source.subject, source.place))

    def _put_expansion(self, expansion: Expansion, namespace: str, source: SourceObject) -> None:
        manifest = expansion.pod
        convert(Pod, manifest)  # names the field of a wrong type
        self._cluster.admission.admit(manifest, namespace)
        pod = convert(Pod, manifest)
        for obj in expansion.objects:
            self._put_manifest(obj, source)
        refused: dict[str, list[str]] = {}
        annotations = manifest["metadata"].get("annotations") or {}
        time, duration = seconds_in(annotations, ARRIVAL), seconds_in(annotations, DURATION)
        for replica in expansion.replicas:
            named = _named(pod, replica)
            key = (named.metadata.namespace, named.metadata.name)
            if key in self._names:
                self._report(source, f"Pod {'/'.join(key)} exists already")
                continue
            if refusal := self._refusals.refusal(manifest, namespace):
                refused.setdefault(refusal, []).append(replica.name)
                continue
            self._names.add(key)
            named = self._with_claims(named, manifest, source)
            self._arrivals.pods.append(Arrival(named, time or 0.0, duration, manifest))
        for refusal, names in refused.items():
            message = f'pods "{names[0]}" is forbidden: {refusal}'
            self._arrivals.refused.append(RefusedPods(_owner(source), len(names), message))
            self._report(source, str(self._arrivals.refused[-1]))

    def _with_claims(self, pod: Pod, manifest: Object, source: SourceObject) -> Pod:
        """The pod, after creating the claims of its ephemeral volumes and of its resource claim templates."""
        metadata = pod.metadata
        owner = {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid}
        for volume in manifest["spec"].get("volumes") or ():
            if volume.get("ephemeral"):
                self._put_manifest(ephemeral_claim(owner, volume), source)
        statuses = []
        for claim in pod.spec.resource_claims:
            template_name = claim.resource_claim_template_name
            if template_name is None:
                continue
            template = self._cluster.admission.claim_templates.get((metadata.namespace, template_name))
            if template is None:
                self._report(source, f"Pod {metadata.name}: no ResourceClaimTemplate {template_name} in the input")
                continue
            created = resource_claim(owner, claim.name, template)
            suffix = generated_suffix(f"{metadata.name}/{claim.name}")
            created["metadata"]["name"] = name = generated_name(created["metadata"]["generateName"], suffix)
            self._put_manifest(created, source)
            statuses.append(PodResourceClaimStatus(name=claim.name, resource_claim_name=name))
        if not statuses:
            return pod
        status = msgspec.structs.replace(pod.status, resource_claim_statuses=statuses)
        return msgspec.structs.replace(pod, status=status)

    def _put_manifest(self, manifest: Object, source: SourceObject) -> None:
        encoded = SourceObject(
            manifest["apiVersion"], manifest["kind"], msgspec.json.encode(manifest), source.subject, source.place
        )
        resource = kinds.resource_of(encoded)
        if resource is None and kinds.may_be_read_by_plugins(encoded):
            self._arrivals.custom_resources.append(encoded)
        obj = kinds.decoded(encoded, resource, self._problems) if resource is not None else None
        if obj is not None:
            self._keep(obj)

    def _keep(self, obj: Any) -> bool:
        """Keep an object unless the cluster or the workload has it, as a StatefulSet's claims may exist already."""
        metadata = obj.metadata
        key = (type(obj), metadata.namespace, metadata.name)
        if key in self._known:
            return False
        self._known.add(key)
        self._arrivals.objects.append(obj)
        return True

    def _nodes(self) -> Sequence[Object]:
        if self._node_manifests is None:
            self._node_manifests = [msgspec.to_builtins(node) for node in self._cluster.nodes]
        return self._node_manifests

    def _report(self, source: SourceObject, text: str) -> None:
        self._problems.report(source.subject, source.place, text)


def _expansions(manifest: Object, nodes: Any) -> Iterator[Expansion]:
    """The pods of a workload object; a Pod is its own."""
    if manifest["kind"] != "Pod":
        manifest.setdefault("spec", {})
        yield from expand(manifest, nodes)
        return
    manifest.pop("status", None)
    (manifest.get("spec") or {}).pop("nodeName", None)
    yield Expansion(manifest, [Replica(manifest["metadata"]["name"], {})])


def _controller_key(source: SourceObject) -> tuple[str, str, str] | None:
    """Kind, namespace and name of a workload controller."""
    type_name = kinds.type_of(source)
    if type_name not in kinds.WORKLOAD_KINDS and type_name not in find_workload_kinds():
        return None
    try:
        metadata = decode(_Named, source.raw).metadata
    except InvalidObject:
        return None  # which is reported when it is loaded
    return source.kind, metadata.namespace or "default", metadata.name


def _is_workload(spec: Any) -> bool:
    """Whether a custom resource has pods, by a template or, as some Rollouts, by that of a Deployment it refers to."""
    return _has_pod_template(spec) or (isinstance(spec, Mapping) and isinstance(spec.get("workloadRef"), Mapping))


def _has_pod_template(part: Any) -> bool:
    """Whether a part of a custom resource has the spec of pods somewhere, as those of Rollouts and jobs do."""
    if isinstance(part, Mapping):
        spec = part.get("spec")
        if isinstance(spec, Mapping) and isinstance(spec.get("containers"), list):
            return True
        return any(map(_has_pod_template, part.values()))
    return isinstance(part, list) and any(map(_has_pod_template, part))


def _owner(source: SourceObject) -> str:
    """``Deployment default/web`` for a workload, as far as it can be decoded."""
    try:
        metadata = decode(_Named, source.raw).metadata
    except InvalidObject:
        return f"{source.kind} {source.place}".rstrip()
    return f"{source.kind} {metadata.namespace or 'default'}/{metadata.name}"


def _pod_count(source: SourceObject) -> int:
    """How many pods an invalid workload asks for, 1 where it does not say."""
    try:
        spec = decode(_Counted, source.raw).spec
    except InvalidObject:
        return 1
    count = spec.replicas if spec.replicas is not None else spec.parallelism
    return 1 if count is None else max(0, count)


def _is_created_anew(source: SourceObject, owners: set[tuple[str, str, str]]) -> bool:
    """Whether the controller of a custom resource is a workload of another project in the same input."""
    if not kinds.is_custom(source) or not find_workload_kinds():
        return False
    try:
        metadata = decode(_Named, source.raw).metadata
    except InvalidObject:
        return False
    namespace = metadata.namespace or "default"
    return any(
        (owner.api_version, owner.kind) in find_workload_kinds() and (owner.kind, namespace, owner.name) in owners
        for owner in metadata.owner_references
    )


def _named(pod: Pod, replica: Replica) -> Pod:
    metadata: ObjectMeta = pod.metadata
    namespace = metadata.namespace or "default"
    metadata = msgspec.structs.replace(
        metadata,
        name=replica.name,
        namespace=namespace,
        uid=f"pod/{namespace}/{replica.name}",
        labels={**metadata.labels, **replica.labels} if replica.labels else metadata.labels,
        resource_version="",
        deletion_timestamp=None,
    )
    return msgspec.structs.replace(pod, metadata=metadata)


def seconds_in(annotations: Mapping[str, str], name: str) -> float | None:
    """The duration in an annotation, in seconds. Raises InvalidObject."""
    text = annotations.get(name)
    if text is None:
        return None
    try:
        seconds = Duration.parse(str(text)).seconds
    except ValueError as error:
        raise InvalidObject(str(error), path=f"metadata.annotations[{name}]") from None
    if seconds < 0:
        raise InvalidObject("expected a duration that is not negative", path=f"metadata.annotations[{name}]")
    return seconds


def rescheduled(cluster: ClusterObjects, scheduler_names: Container[str]) -> ClusterObjects:
    """The cluster with the pods of some schedulers pending again that their controllers would create anew.

    Pods of nodes and DaemonSets stay, those without a controller, those that are being deleted, and those with devices,
    which are allocated on their nodes. Volumes remain bound, so their pods return to where these can be reached.
    """
    pods = []
    for pod in cluster.pods:
        status = pod.status
        has_devices = bool(pod.spec.resource_claims) or status.extended_resource_claim_status is not None
        stays = replacing_controller(pod) is None or has_devices or pod.metadata.deletion_timestamp is not None
        if pod.spec.node_name and pod.spec.scheduler_name in scheduler_names and not stays:
            spec = msgspec.structs.replace(pod.spec, node_name="")
            pod = msgspec.structs.replace(pod, spec=spec, status=PodStatus())
        pods.append(pod)
    return cluster.altered(pods=pods)
