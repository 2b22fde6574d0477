"""A checker that runs any plugin through its contract.

    def test_zone_cost_keeps_its_contract() -> None:
        check_plugin(ZoneCost, nodes=[node("a", zone="zone-a"), node("b", zone="zone-b")])

The scheduler checks that answers have the right form; whether they can be relied on shows only when the same question
is asked in several ways. That is what happens here: a row by itself and among others, a node imagined and a node
changed, an answer remembered through many events and one given afresh. Whether the plugin does what its author wants is
not asked: that is what a :class:`~kubestow.testing.world.World` is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from random import Random
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.cluster.nodes.views import Change, HypotheticalNodes, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.interface import BindPlugin, Plugin, QueueSortPlugin, ScorePlugin
from kubestow.framework.placement import PlacementGeneratePlugin, PlacementScorePlugin
from kubestow.framework.profile import Profile, Registry, build_profile, implements
from kubestow.plugins import in_tree_registry
from kubestow.testing.builders import node, pod
from kubestow.testing.questions import Questions, ReadOnlyRuntime, told
from kubestow.testing.random_events import RandomEvents, replicate_nodes
from kubestow.testing.scheduler_errors import scheduler_errors
from kubestow.testing.world import World

__all__ = ["check_plugin"]

#: Below eight nodes a change of one is no reason to ask about it alone, so that memory would never be put to the test.
_NODES = 12
_IMAGINED = 40


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
    """Ask a plugin the same things in many ways. Raises AssertionError, naming plugin and extension point.

    ``args`` are what ``pluginConfig`` would say, or the struct the plugin declares. ``nodes`` and ``pods`` are the
    material, a few of each, with everything on them that the plugin looks at; pods with a ``spec.nodeName`` are on
    that node, the plugin is asked about the others. Without any, there are some of everything. ``objects`` are of other
    watched kinds. The checks, in order:

    - answers have the shape and type they must have, scores are 0 to 100 once normalised;
    - filters and scores change neither the cluster nor the pod;
    - copies of a pod are the same to the plugin;
    - a view of one row says what the view of all rows says of it;
    - what is said of an imagined change is what is said once it has happened;
    - answers that are remembered stay right through ``events`` random events (``seed`` picks which);
    - a scheduler lives with the plugin for twenty minutes of virtual time, and no extension point fails.

    Runs an event loop of its own, so it cannot be called from a coroutine.
    """
    contract = _Contract(plugin, args, list(pods), list(nodes) or _SOME_NODES, list(objects), Random(seed))
    try:
        for info in contract.pods():
            contract.copies_are_the_same(info)
            contract.rows_agree(info)
            contract.imagined_rows_come_true(info)
        contract.memory_stays_right(events)
        contract.scheduler_lives()
    except PluginError as error:
        raise AssertionError(str(error)) from error


class _Contract:
    """One plugin, on a cluster made of the material."""

    def __init__(
        self,
        kind: type[Plugin],
        args: Any,
        pods: Sequence[Pod],
        nodes: Sequence[Node],
        objects: Sequence[Any],
        random: Random,
    ) -> None:
        self._kind = kind
        self._args = msgspec.to_builtins(args) if isinstance(args, msgspec.Struct) else args
        self._registry: Registry = in_tree_registry() | {kind.name: kind}
        self._bound = [pod for pod in pods if pod.spec.node_name]
        self._pending = [_ours(pod) for pod in pods if not pod.spec.node_name] or _SOME_PODS
        self._objects = objects
        self._random = random
        self._given = nodes
        self._nodes = replicate_nodes(nodes, _NODES)
        self._world = World(self._nodes, self._bound)
        self._cluster = self._world.cluster
        for obj in objects:
            self._cluster.catalog(type(obj)).put(obj)
        self._events = RandomEvents(self._cluster, self._nodes, [*self._pending, *self._bound], objects, random)
        for number, guest in enumerate([*self._pending, *self._bound] * 2):
            node_name = self._nodes[number % len(self._nodes)].metadata.name
            self._cluster.put_pod(self._info(self._events.copy_to_node(guest, node_name)))

    def pods(self) -> list[PodInfo]:
        """The pods that the plugin is asked about."""
        return [self._info(pod) for pod in self._pending]

    def _info(self, pod: Pod) -> PodInfo:
        return self._cluster.shapes.info(pod)

    def _profile(self) -> Profile:
        """The plugin, made anew, and nothing beside it that has an opinion."""
        return build_profile(self._alone, self._registry, self._world)

    @cached_property
    def _alone(self) -> config.KubeSchedulerProfile:
        others = [
            name
            for name, base in (("PrioritySort", QueueSortPlugin), ("DefaultBinder", BindPlugin))
            if not issubclass(self._kind, base)
        ]
        enabled = [{"name": name} for name in (self._kind.name, *others)]
        profile = self._profile_document({"multiPoint": {"disabled": [{"name": "*"}], "enabled": enabled}})
        document = {"apiVersion": config.API_VERSION, "kind": config.KIND, "profiles": [profile]}
        return config.load(document, subject=self._kind.name, implements=implements(self._registry)).profiles[0]

    def _profile_document(self, plugins: dict[str, Any]) -> dict[str, Any]:
        args = [] if self._args is None else [{"name": self._kind.name, "args": self._args}]
        return {"schedulerName": "default-scheduler", "plugins": plugins, "pluginConfig": args}

    def _questions(self, info: PodInfo) -> Questions:
        profile = self._profile()
        plugin = next(plugin for plugin in profile.plugins if plugin.name == self._kind.name)
        return Questions(plugin, ReadOnlyRuntime(profile.runtime.plugins, self._cluster), self._cluster, info)

    def _broken(self, point: str, info: PodInfo, problem: str) -> AssertionError:
        return AssertionError(f"plugin {self._kind.name!r} at {point}: asked about pod {info.key}, {problem}")

    # -- the laws ------------------------------------------------------------------------------------------------

    def copies_are_the_same(self, info: PodInfo) -> None:
        """Signature and concern depend on a pod's shape alone."""
        metadata = replace(info.metadata, name="twin", uid="uid-twin", annotations={"twin": "yes"})
        twin = self._info(replace(info.pod, metadata=metadata))
        asked, other = self._questions(info), self._questions(twin)
        if asked.signature != other.signature:
            problem = "it gives a copy of another name, uid and annotations another signature"
            raise self._broken("signature", info, problem)
        if asked.concerned != other.concerned:
            raise self._broken(
                "applies_to", info, "a copy of another name, uid and annotations concerns it differently"
            )

    def rows_agree(self, info: PodInfo) -> None:
        """What is said of a node does not depend on the nodes it is asked about with."""
        asked = self._questions(info)
        whole = self._cluster.all_nodes()
        for view in self._views(whole):
            if asked.filters:
                said, alone = asked.statuses(whole), asked.statuses(view)
                self._compare("Filter", info, view, alone, [said[row] for row in view.row_numbers])
            if asked.scores and not asked.plugin.scores_feasible_set:
                scores = asked.raw_scores(whole)
                if scores is not None:
                    some = asked.scores_of(view)
                    self._compare("Score", info, view, some.tolist(), scores[view.row_numbers].tolist())
            if asked.scores:
                self._normalizes(asked, info, view)

    def _views(self, whole: Nodes) -> Iterator[Nodes]:
        rows = range(len(whole))
        yield whole
        yield from (Nodes(self._cluster.nodes, slice(row, row + 1)) for row in rows)
        for size in (2, len(rows) // 2, len(rows)):
            yield whole.select(np.array(self._random.sample(rows, min(size, len(rows))), np.intp))

    def _compare(self, point: str, info: PodInfo, view: Nodes, found: Sequence[Any], wanted: Sequence[Any]) -> None:
        for name, one, other in zip(view.names, found, wanted, strict=True):
            if one != other:
                problem = f"it says {one} of node {name} in a view of {len(view)} nodes, but {other} in a view of all"
                raise self._broken(point, info, problem)

    def _normalizes(self, asked: Questions, info: PodInfo, view: Nodes) -> None:
        """Normalised scores are in range, and, as far as nodes are scored by themselves, equal where raw ones are."""
        raw = asked.raw_scores(view)
        if raw is None:
            return
        normalized = asked.normalized(raw, view)
        assert isinstance(asked.plugin, ScorePlugin)
        if asked.plugin.scores_feasible_set:
            return
        for score in np.unique(raw):
            if len(np.unique(normalized[raw == score])) > 1:
                problem = f"nodes of the same raw score {score} get different ones; declare scores_feasible_set = True"
                raise self._broken("NormalizeScore", info, problem)

    def imagined_rows_come_true(self, info: PodInfo) -> None:
        """What a filter says of a node without some pods and with others is what it says once that has happened."""
        asked = self._questions(info)
        if not asked.filters:
            return
        rows, changes = self._imagined()
        said = asked.statuses(HypotheticalNodes(self._cluster.nodes, rows, changes))
        for row, change, imagined in zip(rows.tolist(), changes, said, strict=True):
            self._happens(change)
            after = self._questions(info)
            (real,) = after.statuses(Nodes(self._cluster.nodes, slice(row, row + 1))) if after.filters else (imagined,)
            self._happens(Change(removed=change.added, added=change.removed))
            if real != imagined:
                gone, come = ([p.name for p in pods] for pods in (change.removed, change.added))
                problem = (
                    f"it says {imagined} of node {self._cluster.nodes.names[row]} imagined without {gone} and with "
                    f"{come}, but {real} once that has happened; read pods through the view, not the cluster"
                )
                raise self._broken("Filter", info, problem)

    def _imagined(self) -> tuple[np.ndarray[Any, np.dtype[np.intp]], list[Change]]:
        """Random changes of random nodes."""
        whole = self._cluster.all_nodes()
        rows = [self._random.randrange(len(whole)) for _ in range(_IMAGINED)]
        changes = []
        for row in rows:
            there = list(whole.pods(row))
            removed = self._random.sample(there, self._random.randint(0, len(there)))
            guests = self._random.sample(self._pending, self._random.randint(0, min(2, len(self._pending))))
            added = [self._info(self._events.copy_to_node(guest, whole.name(row))) for guest in guests]
            changes.append(Change(tuple(removed), tuple(added)))
        return np.array(rows, np.intp), changes

    def _happens(self, change: Change) -> None:
        for info in change.removed:
            self._cluster.remove_pod(info.uid)
        for info in change.added:
            self._cluster.put_pod(info)

    def memory_stays_right(self, events: int) -> None:
        """After any events, what is remembered is what would be said by a plugin that was made just now."""
        living = self._profile()
        event = "nothing has happened"
        for _ in range(events):
            for info in self.pods():
                remembered, fresh = (told(profile, self._cluster, info) for profile in (living, self._profile()))
                for node_name, now in fresh.items():
                    if remembered[node_name] != now:
                        point = "Filter" if "refused" in remembered[node_name] + now else "Score"
                        problem = (
                            f"after this: {event}, it remembers {remembered[node_name]} of node {node_name}, but asked "
                            f"afresh says {now}; declare an interest in what changed, put what it depends on into the "
                            "signature, or give no signature"
                        )
                        raise self._broken(point, info, problem)
            event = self._events.next()

    def scheduler_lives(self) -> None:
        """No extension point fails while pods are scheduled among all the other plugins."""
        name = {"name": self._kind.name}
        chooses_placements = issubclass(self._kind, PlacementGeneratePlugin | PlacementScorePlugin)
        company = [{"name": "GangScheduling"}] if chooses_placements else []  # or there would be no gangs to place
        plugins: dict[str, Any] = {"multiPoint": {"enabled": [*company, name]}}
        if issubclass(self._kind, QueueSortPlugin):
            plugins = {"queueSort": {"enabled": [name], "disabled": [{"name": "*"}]}}
        if issubclass(self._kind, BindPlugin):
            binders = [name] if self._kind.name == "DefaultBinder" else [name, {"name": "DefaultBinder"}]
            plugins["bind"] = {"enabled": binders, "disabled": [{"name": "*"}]}
        material = [*self._given, *self._objects, *self._bound, *self._pending, pod("too-large", cpu="1000")]
        told = scheduler_errors(material, plugin=self._kind, profile=self._profile_document(plugins))
        problems = [problem for problem in told if self._kind.name in problem]
        if problems:
            raise AssertionError(f"plugin {self._kind.name!r} in a living scheduler: {problems[0]}")


def _ours(pod: Pod) -> Pod:
    return replace(pod, spec=replace(pod.spec, scheduler_name="default-scheduler"))


_GPU = "example.com/gpu"
_SOME_NODES = [
    node("plain"),
    node("fast", zone="zone-a", labels={"disk": "ssd"}, images={"app:latest": 300 * 2**20}),
    node("tainted", zone="zone-b", taints=["team=a:NoSchedule", "slow=yes:PreferNoSchedule"]),
    node("cordoned", zone="zone-b", unschedulable=True),
    node("large", cpu="64", memory="256Gi", zone="zone-a", allocatable={_GPU: "4"}, labels={"disk": "hdd"}),
]
_SOME_PODS = [
    pod("nothing"),
    pod("small", cpu="100m", memory="64Mi", labels={"app": "web"}),
    pod("large", cpu="3", memory="4Gi", priority=100),
    pod("selective", cpu="1", node_selector={"disk": "ssd"}, labels={"app": "db"}),
    pod("tolerant", cpu="1", tolerations=[{"operator": "Exists"}]),
    pod("gpu", cpu="1", requests={_GPU: "1"}, namespace="research"),
]
