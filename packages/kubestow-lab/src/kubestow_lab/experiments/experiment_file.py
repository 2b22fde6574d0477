"""The file of an experiment: which policies are compared on which clusters and traces, with which seeds.

It is read from a file::

    clusters:                               # optional: each trace runs on each of them instead of on its own nodes
    - {name: prod, files: [dump.json]}
    traces:
    - {name: openb, trace: openb=cluster-trace-gpu-v2023/csv, podList: default, nodeList: gpu_node}
    - {name: shuffled, trace: openb=csv, order: shuffled, load: {resource: kubestow.dev/gpu-milli, share: 1.3}}
    - {name: philly, trace: philly=traces/philly, assume: [gangs=true], window: "0:86400"}
    - {name: small, sample: openb-small}
    - {name: web, workload: [pods.yaml]}    # needs clusters
    policies:
    - {name: default}
    - {name: packed, config: packed.yaml}
    - {name: mine, config: mine.yaml, plugins: [mine.py:Mine], featureGates: "A=true", emulatedVersion: "1.35"}
    seeds: 5                                # 0 to 4; or a list of seeds
    simulation: {ties: random, departures: true, until: 86400}
    metrics: [pending, meanWait, utilisation.cpu]
    level: 0.95
    interval: t                             # or bootstrap
    prices: {label: node.kubernetes.io/instance-type, values: {m7i.large: 0.1008}}
    power: {label: nvidia.com/gpu.product, values: {T4: {idle: 200, busy: 400, gpuIdle: 10, gpuBusy: 70}}}

Paths are relative to the folder of the file. A run is one cluster, trace, policy and seed; the seed decides the choice
among equal nodes, the order of shuffled pods, and the pods of a sample.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any, Literal

import msgspec

from kubestow.config import FeatureGates
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.input.documents import convert_part, read_yaml
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.errors import ConfigurationError, InputError
from kubestow.plugins.registry import referenced_plugins
from kubestow.rules.requests import allocatable_amounts, requests_by_spec
from kubestow_lab.metrics.energy_and_cost import USAGE_METRICS, CarbonIntensities, NodePowers, NodePrices
from kubestow_lab.metrics.intervals import IntervalMethod
from kubestow_lab.metrics.run_metrics import is_metric, metric_lines
from kubestow_lab.simulation.arrivals import Arrival, Arrivals
from kubestow_lab.simulation.simulation import SimulationOptions
from kubestow_lab.traces import openb
from kubestow_lab.traces.loading import load_trace, parse_window
from kubestow_lab.traces.samples import find_sample

#: A name is a part of the name of a folder.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_BLOCK = 1 << 20


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """A part of the file; fields that it does not know are errors."""


class NamedCluster(_Part, frozen=True):
    """A cluster of files, as ``kubectl get nodes,pods -A -o json`` prints it."""

    name: str
    files: list[str]


class Load(_Part, frozen=True):
    """Pods arrive until their requests of a resource are ``share`` times what the cluster has of it."""

    resource: str
    share: float

    def __post_init__(self) -> None:
        if not 0 < self.share < 1000:
            raise ValueError("expected a share greater than 0 and less than 1000")


class NamedTrace(_Part, frozen=True):
    """Pods that arrive: of a published ``trace``, of ``workload`` files, or of a ``sample`` of this package.

    ``order`` shuffled: the pods arrive at once, in an order that the seed decides. With a ``load``, further pods are
    drawn at random from them, or the last ones are left out, until the load is reached. ``node_order`` shuffled: the
    names of the nodes start with a number that the seed gives them, which decides among equal ones with ``ties: name``.
    """

    name: str
    trace: str = ""
    pod_list: str = "default"
    node_list: str = "gpu_node"
    mapping: str = ""
    assume: list[str] = []
    window: str = ""
    workload: list[str] = []
    sample: str = ""
    order: Literal["trace", "shuffled"] = "trace"
    node_order: Literal["trace", "shuffled"] = "trace"
    load: Load | None = None

    def __post_init__(self) -> None:
        if sum(map(bool, (self.trace, self.workload, self.sample))) != 1:
            raise ValueError("expected one of trace, workload and sample")
        if self.load is not None and self.order != "shuffled":
            raise ValueError("load needs order: shuffled")


class Policy(_Part, frozen=True):
    """A scheduler: its configuration, a file or the KubeSchedulerConfiguration itself, and its plugins."""

    name: str
    config: str | dict[str, Any] | None = None
    plugins: list[str] = []
    feature_gates: str = ""
    emulated_version: str = ""


class SimulationSettings(_Part, frozen=True):
    """The options of the simulations, as those of ``kubestow simulate``."""

    ties: Literal["random", "name"] = "random"
    departures: bool = True
    until: float | None = None


class _Document(_Part, frozen=True):
    traces: list[NamedTrace]
    policies: list[Policy]
    clusters: list[NamedCluster] = []
    seeds: int | list[int] = 5
    simulation: SimulationSettings = SimulationSettings()
    metrics: list[str] = []
    level: float = 0.95
    interval: IntervalMethod = IntervalMethod.T
    prices: NodePrices | None = None
    power: NodePowers | None = None
    carbon: CarbonIntensities | None = None


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """One simulation: names of a cluster ("" for the nodes of the trace), a trace and a policy, and the seed."""

    cluster: str
    trace: str
    policy: str
    seed: int

    @property
    def name(self) -> str:
        """The name of its folder."""
        return ".".join(filter(None, (self.cluster, self.trace, self.policy, str(self.seed))))


@dataclass(frozen=True, slots=True)
class Experiment:
    """The content of a file. ``folder`` is where its paths start, ``subject`` names the file in errors."""

    document: _Document
    folder: Path
    subject: str

    @classmethod
    def load(cls, path: str | Path) -> Experiment:
        """Read a file. Raises InputError, naming the field."""
        return cls.of(read_yaml(path), folder=Path(path).parent, subject=str(path))

    @classmethod
    def of(cls, content: Any, *, folder: Path, subject: str = "experiment") -> Experiment:
        """An experiment from the plain data of a file. Raises InputError."""
        document: _Document = convert_part(content, _Document, subject=subject)
        found = cls(document, folder, subject)
        found._check()
        return found

    def _check(self) -> None:
        document = self.document
        named: Mapping[str, Sequence[NamedCluster | NamedTrace | Policy]] = {
            "clusters": document.clusters,
            "traces": document.traces,
            "policies": document.policies,
        }
        for place, parts in named.items():
            if not parts and place != "clusters":
                raise InputError(self.subject, "is empty", place=place)
            names: set[str] = set()
            for index, part in enumerate(parts):
                where = f"{place}[{index}].name"
                if not _NAME.fullmatch(part.name):
                    problem = f"expected letters, digits, dashes and underscores, got {part.name!r}"
                    raise InputError(self.subject, problem, place=where)
                if part.name in names:
                    raise InputError(self.subject, f"{part.name!r} is there twice", place=where)
                names.add(part.name)
        for index, trace in enumerate(document.traces):
            if trace.workload and not document.clusters:
                raise InputError(self.subject, "a workload needs clusters", place=f"traces[{index}]")
            if trace.sample:
                find_sample(trace.sample, subject=self.subject, place=f"traces[{index}].sample")
        for index, name in enumerate(document.metrics):
            if not is_metric(name) and name not in USAGE_METRICS:
                known = "; ".join((*metric_lines(), ", ".join(USAGE_METRICS)))
                problem = f"no metric {name!r}, the metrics are: {known}"
                raise InputError(self.subject, problem, place=f"metrics[{index}]")
        if not self.seeds:
            raise InputError(self.subject, "there are none", place="seeds")
        if len(set(self.seeds)) < len(self.seeds):
            raise InputError(self.subject, "a seed is there twice", place="seeds")
        if not 0 < document.level < 1:
            raise InputError(self.subject, f"expected a number between 0 and 1, got {document.level:g}", place="level")

    @property
    def seeds(self) -> Sequence[int]:
        """All seeds."""
        seeds = self.document.seeds
        return range(seeds) if isinstance(seeds, int) else seeds

    @property
    def policies(self) -> list[str]:
        """The names of the policies; the first one is what the others are compared with."""
        return [policy.name for policy in self.document.policies]

    def runs(self) -> Iterator[Run]:
        """All runs: those of one seed first, so that an experiment that is interrupted has something of each policy."""
        clusters = [cluster.name for cluster in self.document.clusters] or [""]
        for seed in self.seeds:
            for cluster in clusters:
                for trace in self.document.traces:
                    for policy in self.policies:
                        yield Run(cluster, trace.name, policy, seed)

    def source_of(self, run: Run) -> Run:
        """A run that stands for all with the same cluster and pods, but for their order."""
        _, trace = self._trace(run.trace)
        return replace(run, policy="", seed=run.seed if trace.sample else 0)

    # -- what a run consists of --------------------------------------------------------------------------------------

    def scheduler(self, policy: str) -> SchedulerOptions:
        """The scheduler of a policy, with its configuration read. Raises InputError and ConfigurationError."""
        index, found = next((i, each) for i, each in enumerate(self.document.policies) if each.name == policy)
        try:
            plugins = referenced_plugins([self._reference(each) for each in found.plugins])
            gates = FeatureGates.parse(found.feature_gates)
            configuration: Any = found.config
            if isinstance(configuration, str):
                configuration = self.folder / configuration
            return SchedulerOptions(configuration, plugins, gates, found.emulated_version).decoded()
        except InputError as error:
            if isinstance(error, ConfigurationError) and isinstance(found.config, str):
                raise  # it names the file, and has a line for each mistake
            raise InputError(self.subject, str(error), place=f"policies[{index}]") from None

    def workload(self, run: Run) -> tuple[ClusterObjects, Arrivals]:
        """The cluster and the pods of a run, as they are in the files. Raises InputError."""
        index, trace = self._trace(run.trace)
        files = next((each.files for each in self.document.clusters if each.name == run.cluster), [])
        try:
            given = ClusterObjects.load(*(self.folder / path for path in files)) if files else None
            if trace.workload:
                assert given is not None
                return given, Arrivals.load(*(self.folder / path for path in trace.workload), cluster=given)
            if trace.sample:
                cluster, arrivals = find_sample(trace.sample, subject="sample").objects(run.seed)
            else:
                cluster, arrivals = load_trace(
                    self._source(trace),
                    pods=trace.pod_list,
                    nodes=trace.node_list,
                    assumed=trace.assume,
                    mapping=self.folder / trace.mapping if trace.mapping else None,
                    window=parse_window(trace.window) if trace.window else None,
                )
        except InputError as error:
            raise InputError(self.subject, str(error), place=f"traces[{index}]") from None
        return given or cluster, arrivals

    def _trace(self, name: str) -> tuple[int, NamedTrace]:
        return next((index, each) for index, each in enumerate(self.document.traces) if each.name == name)

    def ordered(self, run: Run, cluster: ClusterObjects, arrivals: Arrivals) -> tuple[ClusterObjects, Arrivals]:
        """The nodes and pods of a run in the order of its seed. Raises InputError for a load that no pod adds to."""
        index, trace = self._trace(run.trace)
        if trace.node_order == "shuffled":
            cluster = with_shuffled_nodes(cluster, Random(f"{run.seed}/nodes"))
        if trace.order == "trace":
            return cluster, arrivals
        load = trace.load
        wanted, resource = None, ""
        if load is not None:
            resource = load.resource
            capacity = sum(allocatable_amounts(node.status.allocatable).get(resource, 0) for node in cluster.nodes)
            wanted = load.share * capacity
        try:
            pods = shuffled(arrivals.pods, Random(run.seed), resource, wanted)
        except InputError as error:
            raise InputError(self.subject, error.problem, place=f"traces[{index}].load") from None
        return cluster, replace(arrivals, pods=pods)

    def options(self, run: Run) -> SimulationOptions:
        """The options of the simulation of a run."""
        settings = self.document.simulation
        return SimulationOptions(
            seed=run.seed, ties=settings.ties, departures=settings.departures, until=settings.until
        )

    # -- what it depends on ------------------------------------------------------------------------------------------

    def inputs(self) -> dict[str, str]:
        """The SHA-256 of each input file by its path, relative to the folder if it is in it. Raises InputError."""
        return {name: _digest(path) for name, path in sorted(self._input_files())}

    def _input_files(self) -> Iterator[tuple[str, Path]]:
        document = self.document
        paths: list[Path] = [self.folder / file for cluster in document.clusters for file in cluster.files]
        for trace in document.traces:
            paths += [self.folder / file for file in trace.workload]
            if trace.mapping:
                paths.append(self.folder / trace.mapping)
            if trace.trace:
                name, separator, _ = trace.trace.partition("=")
                path = Path(self._source(trace).partition("=")[2] if separator else self._source(trace))
                if separator and name != "openb":
                    paths.append(path)
                else:
                    paths += openb.list_files(path, pod_list=trace.pod_list, node_list=trace.node_list)
        for policy in document.policies:
            if isinstance(policy.config, str):
                paths.append(self.folder / policy.config)
            for reference in policy.plugins:
                source = self._reference(reference).rpartition(":")[0]
                if source.endswith(".py"):
                    paths.append(Path(source))
                elif (spec := find_spec(source.partition(".")[0])) is not None and spec.origin:
                    paths.append(Path(spec.origin))
        for path in paths:
            if path.is_dir():
                files = sorted(each for each in path.rglob("*") if each.is_file())
            else:
                files = [path]
            for file in files:
                below = file.is_relative_to(self.folder)
                yield str(file.relative_to(self.folder) if below else file), file

    def _source(self, trace: NamedTrace) -> str:
        name, separator, path = trace.trace.partition("=")
        return f"{name}={self.folder / path}" if separator else str(self.folder / trace.trace)

    def _reference(self, reference: str) -> str:
        """A reference to a plugin; a file's path starts at the folder."""
        source, separator, name = reference.rpartition(":")
        return f"{self.folder / source}{separator}{name}" if source.endswith(".py") else reference


def shuffled(pods: Sequence[Arrival], random: Random, resource: str = "", wanted: float | None = None) -> list[Arrival]:
    """The pods in random order at time 0, then further ones drawn from them, until they request ``wanted`` of it.

    As in the experiments of Weng et al. (USENIX ATC 2023), the drawing ends with the first pod that would exceed the
    amount; if the pods exceed it themselves, those from the first that does are left out. Each has a name of its own.
    Raises InputError if no pod requests the resource.
    """
    order = list(range(len(pods)))
    random.shuffle(order)
    if wanted is not None:
        amounts = _amounts(pods, resource)
        if not any(amounts):
            raise InputError("load", f"no pod requests {resource}")
        arrived, kept = 0, 0
        while kept < len(order) and arrived + amounts[order[kept]] <= wanted:
            arrived += amounts[order[kept]]
            kept += 1
        if kept < len(order):
            del order[kept:]
        else:
            while arrived + amounts[number := random.randrange(len(pods))] <= wanted:
                order.append(number)
                arrived += amounts[number]
    return [_renamed(pods[number], position) for position, number in enumerate(order)]


def with_shuffled_nodes(cluster: ClusterObjects, random: Random) -> ClusterObjects:
    """The cluster with random numbers before the names of its nodes, such as ``0042-a``, and its pods on these."""
    numbers = list(range(len(cluster.nodes)))
    random.shuffle(numbers)
    width = len(str(max(numbers, default=0)))
    names = {
        node.metadata.name: f"{number:0{width}}-{node.metadata.name}"
        for node, number in zip(cluster.nodes, numbers, strict=True)
    }
    changed = msgspec.structs.replace
    nodes = [changed(node, metadata=changed(node.metadata, name=names[node.metadata.name])) for node in cluster.nodes]
    pods = [
        changed(pod, spec=changed(pod.spec, node_name=names.get(pod.spec.node_name, pod.spec.node_name)))
        for pod in cluster.pods
    ]
    return cluster.altered(nodes=nodes, pods=pods)


def _amounts(pods: Sequence[Arrival], resource: str) -> list[int]:
    known: dict[int, int] = {}
    for arrival in pods:
        spec = id(arrival.pod.spec)
        if spec not in known:
            known[spec] = requests_by_spec(arrival.pod).get(resource, 0)
    return [known[id(arrival.pod.spec)] for arrival in pods]


def _renamed(arrival: Arrival, position: int) -> Arrival:
    metadata = arrival.pod.metadata
    name = f"{metadata.name}-{position}"
    named = msgspec.structs.replace(metadata, name=name, uid=f"pod/{metadata.namespace}/{name}")
    return replace(arrival, pod=msgspec.structs.replace(arrival.pod, metadata=named), time=0.0)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}") from None
    return digest.hexdigest()


def as_data(experiment: Experiment) -> Mapping[str, Any]:
    """The content of the file as plain data, with all defaults."""
    data: Mapping[str, Any] = msgspec.to_builtins(experiment.document)
    return data
