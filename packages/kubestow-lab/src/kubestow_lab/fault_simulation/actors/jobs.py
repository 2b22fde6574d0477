"""A simulated job controller, which creates gangs.

Groups are of any of the three APIs, those of other projects if their distribution is installed; some of Kubernetes' own
have a topology constraint on the zone. Labels that no scheduler reads record the job of a pod, its size, its minCount
(``needs``), its constraint (``together``) and whether it is in a tree of groups (``tree``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NoReturn

from kubestow.api.core import Pod, PodResourceClaim
from kubestow.api.meta import convert
from kubestow.api.scheduling import CompositePodGroup
from kubestow.cluster.pods.pod_groups import KUBERNETES, PodGroupAPI
from kubestow.plugins.registry import find_pod_group_apis
from kubestow.scheduling.events.resources import resource_of
from kubestow.testing import node, pod
from kubestow_lab.fault_simulation.actors.users import pod_reference
from kubestow_lab.fault_simulation.apiserver.server import SimulatedServer, with_spec
from kubestow_lab.fault_simulation.trace import StepRandom, Steps

_COSCHEDULING, _VOLCANO = "scheduling.x-k8s.io", "scheduling.volcano.sh"
_INSTALLED = {api.name: api for api in find_pod_group_apis()}
_APIS = (KUBERNETES, *(_INSTALLED[name] for name in (_COSCHEDULING, _VOLCANO) if name in _INSTALLED))
_GROUPS = [resource_of(api.kind) for api in _APIS]
#: The node of some gangs that are created after the faults.
_NODE = "node-of-jobs"


def _group(name: str, minimum: int, *, api: PodGroupAPI, timeout: int, **spec: Any) -> Any:
    """A pod group with this minCount or minMember; ``spec`` are further fields. Only co-scheduling has a timeout."""
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    if api is KUBERNETES:
        spec["schedulingPolicy"] = {"gang": {"minCount": minimum}}
    else:
        spec |= {"minMember": minimum, "scheduleTimeoutSeconds": timeout}
    return convert(api.kind, {"metadata": metadata, "spec": spec})


class Jobs:
    """Creates jobs; ``spec_parts`` make parts of the pod specs of some jobs of the first scheduler."""

    def __init__(
        self,
        server: SimulatedServer,
        random: Random,
        *,
        scheduler_names: Sequence[str],
        spec_parts: Sequence[Callable[[], dict[str, Any]]],
        steps: Steps,
        sources: StepRandom,
        are_units: bool = False,
        mixes_sizes: bool = False,
    ) -> None:
        self._server, self._random, self._steps = server, random, steps
        self._sources = sources
        self._scheduler_names, self._spec_parts = scheduler_names, spec_parts
        #: Whether the pods of Kubernetes' groups have the priority of their group, as they must since 1.37.
        self._are_units = are_units
        #: Whether the pods of a job differ in what they request.
        self._mixes_sizes = mixes_sizes
        self._interval = random.choice((2.0, 4.0))  # seconds between two jobs
        self._started = 0
        #: The tree that the next group may join: its name and priority. Its pods have the first scheduler.
        self._tree: tuple[str, int] | None = None
        #: What the last gang needs, the group itself or the last of its pods, until it is created.
        self._late: list[Any] = []
        #: The pod of a gang that waits for a claim that is never created, once there is one.
        self._blocked: Pod | None = None

    async def run(self) -> NoReturn:
        """Run until cancelled."""
        while True:
            self._random = self._sources.next()
            await asyncio.sleep(self._random.expovariate(1.0 / self._interval))
            if self._steps.takes("job: create a gang"):
                await self._start()
            if self._started and self._random.random() < 0.15 and self._steps.takes("job: recreate a pod group"):
                await self._recreate_group()

    async def _start(self) -> None:
        """Create a group and its pods one after the other, at times in random order."""
        draw = self._random
        self._started += 1
        name, size = f"job-{self._started}", draw.randint(2, 5)
        needs, timeout, api = draw.randint(1, size), draw.choice((1, 60)), draw.choice(_APIS)
        options = self._group_options() if api is KUBERNETES else {}
        objects: list[Any] = []
        if options and self._are_units and draw.random() < 0.4:
            objects += self._join_tree(name, options)
        same = {"priority": options["priority"]} if options and self._are_units else {}
        in_tree = "parentCompositePodGroupName" in options
        pods = self._pods(
            name, size, needs=needs, api=api, in_one_zone="schedulingConstraints" in options, in_tree=in_tree, **same
        )
        objects += [_group(name, needs, api=api, timeout=timeout, **options), *pods]
        if draw.random() < 0.3:
            draw.shuffle(objects)
        for obj in objects:
            self._server.put(obj)
            if draw.random() < 0.3:
                await asyncio.sleep(draw.uniform(0.0, 0.5))

    def _join_tree(self, name: str, options: dict[str, Any]) -> list[CompositePodGroup]:
        """Put a group into the tree of the one before it, or into a new one, which is returned."""
        draw = self._random
        if self._tree is not None and draw.random() < 0.6:
            options["parentCompositePodGroupName"], options["priority"] = self._tree
            self._tree = None
            return []
        tree = f"tree-of-{name}"
        self._tree = tree, options["priority"]
        options["parentCompositePodGroupName"] = tree
        spec = {
            "schedulingPolicy": {"gang": {"minGroupCount": draw.choice((1, 1, 2))}},
            "priority": options["priority"],
            "disruptionMode": draw.choice(({"single": {}}, {"all": {}})),
        }
        return [
            convert(CompositePodGroup, {"metadata": {"name": tree, "namespace": "default", "uid": tree}, "spec": spec})
        ]

    def _group_options(self) -> dict[str, Any]:
        """Random optional fields of a PodGroup."""
        draw = self._random
        options: dict[str, Any] = {
            "priority": draw.choice((0, 10, 100)),
            "disruptionMode": draw.choice(({"single": {}}, {"all": {}})),
        }
        return options | ({"schedulingConstraints": {"topology": [{"key": "zone"}]}} if draw.random() < 0.3 else {})

    def _create_without_last(self) -> None:
        """Create a gang apart from its group or one of its pods, whichever."""
        draw = self._random = self._sources.next()
        self._started += 1
        name, size, api = f"job-{self._started}", draw.randint(2, 3), draw.choice(_APIS)
        options = {"priority": 0} if api is KUBERNETES and self._are_units else {}
        pods = self._pods(name, size, needs=size, api=api, in_one_zone=False, in_tree=False, cpu="100m", **options)
        objects = [_group(name, size, api=api, timeout=60, **options), *pods]
        self._late = [objects.pop(draw.choice((0, 0, 1)))]
        for obj in objects:
            self._server.put(obj)

    def helpful_changes(self) -> tuple[Callable[[], None], ...]:
        """Changes that can make pods schedulable, to be made one after the other."""
        of_units = (self._create_with_blocked, self._delete_blocked) if self._are_units else ()
        return (
            self._create_without_last,
            self._complete_last,
            self._create_without_pinned,
            self._complete_last,
            *of_units,
        )

    def _complete_last(self) -> None:
        while self._late:
            self._server.put(self._late.pop())

    def _create_without_pinned(self) -> None:
        """Create a gang apart from one of its pods, for which its user has chosen a node."""
        self._late = [with_spec(self._create_whole_gang().pop(), node_name=_NODE)]

    def _create_with_blocked(self) -> None:
        """Create a gang with one pod more than it needs, which waits for a claim that is never created."""
        blocked = self._create_whole_gang(spare=1).pop()
        claim = PodResourceClaim(name="gpu", resource_claim_name="gpu-never-created")
        self._blocked = with_spec(blocked, resource_claims=[claim])
        self._server.put(self._blocked)

    def _delete_blocked(self) -> None:
        """Delete that pod, so that the others need not wait for it any more."""
        if self._blocked is not None:
            self._server.delete(pod_reference(self._blocked))

    def _create_whole_gang(self, *, spare: int = 0) -> list[Pod]:
        """Create a gang that needs all but some of its pods, and a node for them; not yet its last pod.

        Returns its pods.
        """
        self._random = self._sources.next()
        self._started += 1
        name, size, api = f"job-{self._started}", 3, KUBERNETES if spare else self._random.choice(_APIS)
        options = {"priority": 0} if api is KUBERNETES and self._are_units else {}
        needs, tolerations = size - spare, [{"key": "jobs", "operator": "Exists"}]
        pods = self._pods(
            name,
            size,
            needs=needs,
            api=api,
            in_one_zone=False,
            in_tree=False,
            cpu="100m",
            tolerations=tolerations,
            **options,
        )
        plain = [with_spec(each, volumes=[], resource_claims=[], scheduling_gates=[]) for each in pods]
        self._server.put(node(_NODE, cpu="8", labels={"zone": "a"}, taints=("jobs=yes:NoSchedule",)))
        for obj in (_group(name, needs, api=api, timeout=60, **options), *plain[:-1]):
            self._server.put(obj)
        return plain

    async def _recreate_group(self) -> None:
        """Delete a group, and recreate it after a while."""
        if not (groups := pod_groups(self._server)):
            return
        chosen = self._random.choice(groups)
        self._server.remove(chosen)
        await asyncio.sleep(self._random.uniform(0.0, 2.0))
        self._server.put(chosen)

    def _pods(
        self, job: str, size: int, *, needs: int, api: PodGroupAPI, in_one_zone: bool, in_tree: bool, **fixed: Any
    ) -> list[Pod]:
        draw, names = self._random, self._scheduler_names
        same: dict[str, Any] = {"cpu": draw.choice(("100m", "1", "2")), "priority": draw.choice((0, 10, 100))} | fixed
        scheduler = names[0] if in_tree else draw.choice(names)
        spec_part = draw.choice(self._spec_parts) if scheduler == names[0] and draw.random() < 0.3 else dict
        labels = {"app": "job", "job": job, "size": str(size), "needs": str(needs)}
        labels |= ({"together": "yes"} if in_one_zone else {}) | ({"tree": "yes"} if in_tree else {})
        spec: dict[str, Any] = {}
        annotations = {}
        if api is KUBERNETES:
            spec["schedulingGroup"] = {"podGroupName": job}
        elif api.name == _COSCHEDULING:
            labels["scheduling.x-k8s.io/pod-group"] = job
        else:
            annotations["scheduling.k8s.io/group-name"] = job
        sizes = [{"cpu": draw.choice(("1", "2", "3"))} if self._mixes_sizes else {} for _ in range(size)]
        return [
            pod(
                f"{job}-{number}",
                labels=labels,
                scheduler=scheduler,
                gates=("quota",) if draw.random() < 0.05 else (),
                metadata={"uid": f"uid-{job}-{number}", "generation": 1, "annotations": annotations},
                spec=spec | spec_part(),
                status={"phase": "Pending"},
                **(same | sizes[number]),
            )
            for number in range(size)
        ]


def pod_groups(server: SimulatedServer) -> list[Any]:
    """The pod groups of all three APIs."""
    return [each for resource in _GROUPS for each in server.listed(resource)]
