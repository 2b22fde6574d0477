"""A checker for the contract of any plugin.

    def test_zone_cost_satisfies_the_contract() -> None:
        check_plugin(ZoneCost, nodes=[node("a", zone="zone-a"), node("b", zone="zone-b")])

The framework runtime validates types and shapes of results. Whether results are consistent shows only when a plugin is
called in several ways: for one row and for many, for a hypothetical change and for the actual one, with cached results
after many events and without. Whether a plugin does what its author intends is tested with a
:class:`~kubestow.testing.plugin_harness.PluginHarness`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import permutations
from random import Random
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from kubestow import config
from kubestow.api.core import (
    Node,
    PersistentVolumeClaimVolumeSource,
    Pod,
    PodSpec,
    ResourceRequirements,
    Volume,
)
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.views import HypotheticalNodes, NodeChange, NodeRows, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.gang import PlacementGeneratePlugin, PlacementScorePlugin
from kubestow.framework.interface import BindPlugin, FilterPlugin, Plugin, QueueSortPlugin, ScorePlugin
from kubestow.framework.profile import Profile, Registry, build_profile, implements
from kubestow.plugins import in_tree_registry
from kubestow.scheduling.queue.hint_index import HintIndex
from kubestow.testing.builders import node, pod
from kubestow.testing.plugin_harness import PluginHarness
from kubestow.testing.plugin_probe import PluginProbe, ReadOnlyRuntime, describe_results
from kubestow.testing.random_events import RandomEvents, replicate_nodes
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

#: With fewer than eight nodes, a change of one node invalidates all results, so cached results would not be tested.
_NODES = 12
_HYPOTHETICAL_CHANGES = 40
#: How long the scheduler runs, in virtual time.
_RUN_SECONDS = 20 * 60.0


def check_plugin(
    plugin: type[Plugin],
    *,
    args: Any = None,
    pods: Iterable[Pod] = (),
    nodes: Iterable[Node] = (),
    objects: Iterable[Any] = (),
    events: int = 120,
    seed: int = 0,
) -> None:
    """Check the contract of a plugin. Raises AssertionError, naming plugin and extension point.

    ``args`` are the arguments in ``pluginConfig``, or the struct the plugin declares. ``nodes`` and ``pods`` are a few
    examples with all fields that the plugin reads; pods with a ``spec.nodeName`` are existing pods, the others are
    scheduled. Defaults are provided. ``objects`` are of other watched kinds. The checks, in order:

    - results have the required shape and dtype, normalized scores are 0 to 100;
    - Filter and Score change neither the cluster nor the pod;
    - copies of a pod have the same signature, and so have pods that differ in labels other than its ``label_keys``;
    - the result for a node is the same in a view of one row and of all rows;
    - the result of Filter for a hypothetical change equals the result after the actual change, and so does the raw
      score of a plugin that declares ``scores_hypothetical_nodes``;
    - pods have a hint key in common with all events of nodes and pods for which a hint returns True;
    - cached results stay correct through ``events`` random events (chosen by ``seed``);
    - a scheduler with the plugin runs for 20 minutes of virtual time without an error at any extension point.

    It runs its own event loop, so it cannot be called from a coroutine.
    """
    subject = _Subject(plugin, args, list(pods), list(nodes) or _DEFAULT_NODES, list(objects), Random(seed))
    contract = _Contract(subject)
    try:
        for info in subject.pods():
            contract.check_copies(info)
            contract.check_label_keys(info)
            contract.check_requests(info)
            contract.check_volumes(info)
            contract.check_views(info)
            contract.check_rows(info)
            contract.check_hypothetical_nodes(info)
            contract.check_hint_keys(info)
        contract.check_cached_results(events)
        contract.check_running_scheduler()
    except PluginError as error:
        raise AssertionError(str(error)) from error


class _Subject:
    """The plugin under test, in profiles with nothing else that decides, on a cluster made from the given objects."""

    def __init__(
        self,
        kind: type[Plugin],
        args: Any,
        pods: Sequence[Pod],
        nodes: Sequence[Node],
        objects: Sequence[Any],
        random: Random,
    ) -> None:
        self.kind = kind
        self._args = msgspec.to_builtins(args) if isinstance(args, msgspec.Struct) else args
        self._registry: Registry = in_tree_registry() | {kind.name: kind}
        bound = [pod for pod in pods if pod.spec.node_name]
        unbound = (pod for pod in pods if not pod.spec.node_name)
        pending = [replace(pod, spec=replace(pod.spec, scheduler_name="default-scheduler")) for pod in unbound]
        self._pending = pending or _DEFAULT_PODS
        self._random = random
        #: The nodes, other objects and pods it was made from.
        self.examples = [*nodes, *objects, *bound, *self._pending]
        self._nodes = replicate_nodes(nodes, _NODES)
        self._world = PluginHarness(self._nodes, bound)
        self.cluster = self._world.cluster
        for obj in objects:
            self.cluster.catalog(type(obj)).put(obj)
        self.events = RandomEvents(self.cluster, self._nodes, [*self._pending, *bound], objects, random)
        for number, template in enumerate([*self._pending, *bound] * 2):
            node_name = self._nodes[number % len(self._nodes)].metadata.name
            self.cluster.put_pod(self.info(self.events.copy_to_node(template, node_name)))

    def pods(self) -> list[PodInfo]:
        """The pending pods."""
        return [self.info(pod) for pod in self._pending]

    def info(self, pod: Pod) -> PodInfo:
        """A pod with its shape in this cluster."""
        return self.cluster.shapes.info(pod)

    def profile(self) -> Profile:
        """A new profile of the plugin and the mandatory QueueSort and Bind plugins."""
        return build_profile(self._minimal_profile, self._registry, self._world)

    @cached_property
    def _minimal_profile(self) -> config.KubeSchedulerProfile:
        mandatory = {"PrioritySort": QueueSortPlugin, "DefaultBinder": BindPlugin}
        others = [name for name, base in mandatory.items() if not issubclass(self.kind, base)]
        enabled = [{"name": name} for name in (self.kind.name, *others)]
        profile = self.profile_document({"multiPoint": {"disabled": [{"name": "*"}], "enabled": enabled}})
        document = {"apiVersion": config.API_VERSION, "kind": config.KIND, "profiles": [profile]}
        return config.load(document, subject=self.kind.name, implements=implements(self._registry)).profiles[0]

    def profile_document(self, plugins: dict[str, Any]) -> dict[str, Any]:
        """A profile as in a configuration file, with the arguments of the plugin."""
        args = [] if self._args is None else [{"name": self.kind.name, "args": self._args}]
        return {"schedulerName": "default-scheduler", "plugins": plugins, "pluginConfig": args}

    def probe(self, info: PodInfo) -> PluginProbe:
        """The plugin in a new profile, after PreFilter for a pod."""
        profile = self.profile()
        plugin = next(plugin for plugin in profile.plugins if plugin.name == self.kind.name)
        return PluginProbe(plugin, ReadOnlyRuntime(profile.runtime.plugins, self.cluster), self.cluster, info)

    def views(self, all_nodes: Nodes) -> Iterator[Nodes]:
        """All nodes, each alone, and random selections of several."""
        rows = range(len(all_nodes))
        yield all_nodes
        yield from (Nodes(self.cluster.nodes, slice(row, row + 1)) for row in rows)
        for size in (2, len(rows) // 2, len(rows)):
            yield all_nodes.select(np.array(self._random.sample(rows, min(size, len(rows))), np.intp))

    def hypothetical_changes(self) -> tuple[np.ndarray[Any, np.dtype[np.intp]], list[NodeChange]]:
        """Random changes of random nodes."""
        nodes = self.cluster.all_nodes()
        rows = [self._random.randrange(len(nodes)) for _ in range(_HYPOTHETICAL_CHANGES)]
        changes = []
        for row in rows:
            existing = list(nodes.pods(row))
            removed = self._random.sample(existing, self._random.randint(0, len(existing)))
            templates = self._random.sample(self._pending, self._random.randint(0, min(2, len(self._pending))))
            added = [self.info(self.events.copy_to_node(template, nodes.name(row))) for template in templates]
            changes.append(NodeChange(tuple(removed), tuple(added)))
        return np.array(rows, np.intp), changes

    def changed_objects(self, resource: str) -> Iterator[tuple[Any, Any]]:
        """The examples of nodes, or copies of those of pods, each added, deleted, and updated to each other one."""
        objects: list[Any] = []
        if resource == EventResource.NODE:
            objects = [each for each in self.examples if isinstance(each, Node)]
        elif resource in (EventResource.POD, EventResource.ASSIGNED_POD, EventResource.UNSCHEDULABLE_POD):
            pods = [each for each in self.examples if isinstance(each, Pod)]
            copies = [self.events.copy_to_node(pod, node_name) for pod in pods for node_name in ("", "node")]
            objects = [self.info(each) for each in copies]
        yield from permutations([*objects, None], 2)

    def apply(self, change: NodeChange) -> None:
        """Make a change that was hypothetical."""
        for info in change.removed:
            self.cluster.remove_pod(info.uid)
        for info in change.added:
            self.cluster.put_pod(info)


class _Contract:
    """The checks, one method each. All raise AssertionError."""

    def __init__(self, subject: _Subject) -> None:
        self._subject, self._cluster = subject, subject.cluster

    def _violation(self, point: str, info: PodInfo, message: str) -> AssertionError:
        return AssertionError(f"plugin {self._subject.kind.name!r} at {point}, pod {info.key}: {message}")

    def check_copies(self, info: PodInfo) -> None:
        """Signature and applicability depend only on the shape of a pod."""
        metadata = replace(info.metadata, name="twin", uid="uid-twin", annotations={"twin": "yes"})
        twin = self._subject.info(replace(info.pod, metadata=metadata))
        probe, other = self._subject.probe(info), self._subject.probe(twin)
        if probe.signature != other.signature:
            message = "a copy with another name, uid and annotations has another signature"
            raise self._violation("signature", info, message)
        if probe.applies != other.applies:
            message = "the result differs for a copy with another name, uid and annotations"
            raise self._violation("applies_to", info, message)

    def check_label_keys(self, info: PodInfo) -> None:
        """Signature, applicability and results do not depend on labels with keys that the plugin does not name."""
        probe = self._subject.probe(info)
        keys = probe.label_keys
        if keys is None:
            return
        labels = {key: value for key, value in info.labels.items() if key in keys} | {"kubestow.example/twin": "yes"}
        twin = self._subject.info(replace(info.pod, metadata=replace(info.metadata, labels=labels)))
        other = self._subject.probe(twin)
        if (probe.signature, probe.applies) != (other.signature, other.applies):
            message = f"the result differs for a pod with the same labels of {sorted(keys)} and other labels"
            raise self._violation("label_keys", info, message)
        nodes = self._cluster.all_nodes()
        if probe.filters and probe.statuses(nodes) != other.statuses(nodes):
            raise self._violation("label_keys", info, f"Filter depends on labels other than {sorted(keys)}")

    def check_requests(self, info: PodInfo) -> None:
        """Applicability and results do not depend on requests, if the plugin declares that it does not read them."""
        if not self._subject.kind.reads_requests:
            resources = ResourceRequirements(requests={"cpu": "3m", "kubestow.example/twin": "1"})
            containers = [replace(container, resources=resources) for container in info.spec.containers]
            self._compare_with_twin(info, replace(info.spec, containers=containers), "requests")

    def check_volumes(self, info: PodInfo) -> None:
        """Applicability and results do not depend on volumes, if the plugin declares that it does not read them."""
        if not self._subject.kind.reads_volumes:
            claim = Volume(name="twin", persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name="twin"))
            self._compare_with_twin(info, replace(info.spec, volumes=[claim]), "volumes")

    def _compare_with_twin(self, info: PodInfo, spec: PodSpec, what: str) -> None:
        probe, twin = self._subject.probe(info), self._subject.info(replace(info.pod, spec=spec))
        other = self._subject.probe(twin)
        if (probe.applies, probe.label_keys) != (other.applies, other.label_keys):
            raise self._violation(f"reads_{what}", info, f"the result differs for a pod with other {what}")
        nodes = self._cluster.all_nodes()
        if probe.filters and probe.statuses(nodes) != other.statuses(nodes):
            raise self._violation(f"reads_{what}", info, f"Filter depends on the pod's {what}")

    def check_rows(self, info: PodInfo) -> None:
        """The optional forms for rows have the results of the forms for many nodes."""
        probe = self._subject.probe(info)
        kind, table, all_nodes = type(probe.plugin), self._cluster.nodes, self._cluster.all_nodes()
        every_row = range(len(all_nodes))
        for rows in (*([row] for row in every_row), list(every_row)):
            view, nodes = Nodes(table, np.array(rows, np.intp)), NodeRows(table, rows)
            if probe.filters and (kind.filter_row, kind.filter_rows) != (
                FilterPlugin.filter_row,
                FilterPlugin.filter_rows,
            ):
                self._compare("Filter", info, view, probe.keys_of_rows(nodes), probe.keys(view))
            if probe.scores and (kind.score_row, kind.score_rows) != (ScorePlugin.score_row, ScorePlugin.score_rows):
                scores = probe.raw_scores(all_nodes)
                if scores is not None:
                    self._compare("Score", info, view, probe.scores_of_rows(nodes), scores[rows].tolist())

    def check_views(self, info: PodInfo) -> None:
        """The result for a node does not depend on the other nodes of the view."""
        probe = self._subject.probe(info)
        all_nodes = self._cluster.all_nodes()
        for view in self._subject.views(all_nodes):
            if probe.filters:
                expected, actual = probe.statuses(all_nodes), probe.statuses(view)
                self._compare("Filter", info, view, actual, [expected[row] for row in view.row_numbers])
            if probe.scores and not probe.plugin.scores_feasible_set:
                scores = probe.raw_scores(all_nodes)
                if scores is not None:
                    actual_scores = probe.scores_of(view)
                    self._compare("Score", info, view, actual_scores.tolist(), scores[view.row_numbers].tolist())
            if probe.scores:
                self._check_normalization(probe, info, view)

    def _compare(self, point: str, info: PodInfo, view: Nodes, actual: Sequence[Any], expected: Sequence[Any]) -> None:
        for name, result, in_all in zip(view.names, actual, expected, strict=True):
            if result != in_all:
                message = f"node {name}: {result} in a view of {len(view)} nodes, but {in_all} in a view of all nodes"
                raise self._violation(point, info, message)

    def _check_normalization(self, probe: PluginProbe, info: PodInfo, view: Nodes) -> None:
        """Normalized scores are in range, and equal for equal raw scores unless the plugin scores the feasible set."""
        raw = probe.raw_scores(view)
        if raw is None:
            return
        normalized = probe.normalized(raw, view)
        assert isinstance(probe.plugin, ScorePlugin)
        if probe.plugin.scores_feasible_set:
            return
        for score in np.unique(raw):
            if len(np.unique(normalized[raw == score])) > 1:
                message = (
                    f"nodes of the same raw score {score} have different normalized scores; "
                    "declare scores_feasible_set = True"
                )
                raise self._violation("NormalizeScore", info, message)

    def check_hypothetical_nodes(self, info: PodInfo) -> None:
        """The results for a hypothetical change equal the results after the actual change."""

        def results(probe: PluginProbe, nodes: Nodes) -> dict[str, Sequence[Any]]:
            """One result per node, by extension point."""
            found: dict[str, Sequence[Any]] = {"Filter": probe.statuses(nodes)} if probe.filters else {}
            if probe.scores and isinstance(probe.plugin, ScorePlugin) and probe.plugin.scores_hypothetical_nodes:
                scores = probe.raw_scores(nodes)
                if scores is not None:
                    found["Score"] = scores.tolist()
            return found

        subject, cluster = self._subject, self._cluster
        rows, changes = subject.hypothetical_changes()
        hypothetical = results(subject.probe(info), HypotheticalNodes(cluster.nodes, rows, changes))
        for position, (row, change) in enumerate(zip(rows.tolist(), changes, strict=True) if hypothetical else ()):
            subject.apply(change)
            actual = results(subject.probe(info), Nodes(cluster.nodes, slice(row, row + 1)))
            subject.apply(NodeChange(removed=change.added, added=change.removed))
            for point in hypothetical.keys() & actual.keys():
                before, (now,) = hypothetical[point][position], actual[point]
                if before != now:
                    removed, added = ([p.name for p in pods] for pods in (change.removed, change.added))
                    message = (
                        f"node {cluster.nodes.names[row]}: {before} hypothetically without pods {removed} and "
                        f"with pods {added}, but {now} after the change; read pods through the view, not the cluster"
                    )
                    raise self._violation(point, info, message)

    def check_hint_keys(self, info: PodInfo) -> None:
        """A hint returns True only for events that have a hint key in common with the pod."""
        profile = self._subject.profile()
        plugin = next(plugin for plugin in profile.plugins if plugin.name == self._subject.kind.name)
        index: HintIndex[str] = HintIndex()
        index.add(info.uid, {plugin.name: profile.queueing.hint_keys(plugin, info)})
        for registration in plugin.events_to_register:
            event = registration.event
            if registration.hint is None or registration.hint_keys is None:
                continue
            for old, new in self._subject.changed_objects(event.resource):
                action = Action.ADD if old is None else Action.DELETE if new is None else Action.UPDATE
                keys = profile.queueing.run_hint_keys(plugin.name, registration, old, new)
                if not event.action & action or index.find({plugin.name: keys}):
                    continue
                if profile.queueing.run_queueing_hint(plugin.name, registration, info, old, new, event=event):
                    message = f"the hint returns True for an event of {event.resource} without a key of the pod"
                    raise self._violation("hint_keys", info, message)

    def check_cached_results(self, events: int) -> None:
        """After any event, cached results equal those of a newly built profile."""
        profile = self._subject.profile()
        event = "no event"
        for _ in range(events):
            for info in self._subject.pods():
                cached = describe_results(profile, self._cluster, info)
                rebuilt = describe_results(self._subject.profile(), self._cluster, info)
                for node_name, uncached in rebuilt.items():
                    if cached[node_name] != uncached:
                        point = "Filter" if "rejected" in cached[node_name] + uncached else "Score"
                        message = (
                            f"node {node_name} after the event '{event}': {cached[node_name]} in the cache, but "
                            f"{uncached} without it; register for the event, add what the result depends on to the "
                            "signature, or return no signature"
                        )
                        raise self._violation(point, info, message)
            event = self._subject.events.next()

    def check_running_scheduler(self) -> None:
        """No extension point fails while pods are scheduled together with all other plugins."""
        name = {"name": self._subject.kind.name}
        chooses_placements = issubclass(self._subject.kind, PlacementGeneratePlugin | PlacementScorePlugin)
        required = [{"name": "GangScheduling"}] if chooses_placements else []  # only gangs have placements
        plugins: dict[str, Any] = {"multiPoint": {"enabled": [*required, name]}}
        if issubclass(self._subject.kind, QueueSortPlugin):
            plugins = {"queueSort": {"enabled": [name], "disabled": [{"name": "*"}]}}
        if issubclass(self._subject.kind, BindPlugin):
            binders = [name] if self._subject.kind.name == "DefaultBinder" else [name, {"name": "DefaultBinder"}]
            plugins["bind"] = {"enabled": binders, "disabled": [{"name": "*"}]}
        objects = [*self._subject.examples, pod("too-large", cpu="1000")]
        profile = self._subject.profile_document(plugins)
        messages = _scheduler_errors(objects, plugin=self._subject.kind, profile=profile)
        errors = [message for message in messages if self._subject.kind.name in message]
        if errors:
            raise AssertionError(f"plugin {self._subject.kind.name!r} in a running scheduler: {errors[0]}")


def _scheduler_errors(objects: Iterable[Any], *, plugin: type[Plugin], profile: Mapping[str, Any]) -> list[str]:
    """Run the scheduler for 20 minutes of virtual time; the messages of logged errors and SchedulerError conditions."""
    messages: list[str] = []

    async def scenario(harness: SchedulerHarness) -> None:
        await harness.advance(_RUN_SECONDS)
        conditions = (condition for pod in harness.cluster.pods() for condition in pod.status.conditions)
        messages.extend(condition.message or "" for condition in conditions if condition.reason == "SchedulerError")

    logged = _ErrorHandler()
    logger = logging.getLogger("kubestow")
    logger.addHandler(logged)
    try:
        in_virtual_time(scenario, *objects, plugins=[plugin], profiles=[profile])
    finally:
        logger.removeHandler(logged)
    return messages + logged.messages


class _ErrorHandler(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


_GPU = "example.com/gpu"
_DEFAULT_NODES = [
    node("plain"),
    node("fast", zone="zone-a", labels={"disk": "ssd"}, images={"app:latest": 300 * 2**20}),
    node("tainted", zone="zone-b", taints=["team=a:NoSchedule", "slow=yes:PreferNoSchedule"]),
    node("cordoned", zone="zone-b", unschedulable=True),
    node("large", cpu="64", memory="256Gi", zone="zone-a", allocatable={_GPU: "4"}, labels={"disk": "hdd"}),
]
_DEFAULT_PODS = [
    pod("nothing"),
    pod("small", cpu="100m", memory="64Mi", labels={"app": "web"}),
    pod("large", cpu="3", memory="4Gi", priority=100),
    pod("selective", cpu="1", node_selector={"disk": "ssd"}, labels={"app": "db"}),
    pod("tolerant", cpu="1", tolerations=[{"operator": "Exists"}]),
    pod("gpu", cpu="1", requests={_GPU: "1"}, namespace="research"),
]
