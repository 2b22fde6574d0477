"""GangScheduling schedules the pods of a group all together or not at all (semantics 8.18).

It reads Kubernetes' own pod groups (with the gate GenericWorkload) and those of other projects, whose APIs the cluster
cache knows (:class:`~kubestow.cluster.pods.pod_groups.PodGroupAPI`). PreEnqueue holds pods back until their group
exists and has enough of them. The scheduler then places the members of a gang in one cycle
(:mod:`kubestow.framework.gang`); Permit checks once more that enough of them have nodes. The outcome of a cycle is
written to the condition of groups that have one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import msgspec

from kubestow.api.formats.timestamps import timestamp
from kubestow.api.reports import REASON_SCHEDULER_ERROR, REASON_UNSCHEDULABLE, ConditionType
from kubestow.api.scheduling import (
    CompositePodGroup,
    CompositePodGroupSpec,
    Condition,
    PodGroup,
    PodGroupSpec,
)
from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.pods.hierarchies import MAX_LEVELS
from kubestow.cluster.pods.pod_groups import COMPOSITE, KUBERNETES, Members, PodGroupAPI, PodGroupName, native_name
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import EventRegistration, HintKeys, Invalidation, on
from kubestow.framework.gang import Gang, GangOutcome, GangPlugin, GroupTerms, Preference, Role, Segments
from kubestow.framework.interface import Handle, Permission, PermitPlugin
from kubestow.framework.status import SUCCESS, Status
from kubestow.rules.minors import Behaviour

_POD_GROUP_MISSING = 'waiting for pods\'s pod group "{}" to appear in scheduling queue'
_TOO_FEW_PODS = (
    "waiting for minCount pods from a gang to appear in scheduling queue: "
    "{} of the {} pods that pod group {} needs are there"
)
_HAS_GATED_PODS = "waiting for all pods of pod group {} to lose their scheduling gates"
_NO_HIERARCHY = "failed to build hierarchy snapshot: composite pod group {} or one above it is missing"
_TREE_NOT_READY = 'waiting for composite pod group "{}" tree to meet quorum'
_POD_GROUP_GONE = 'pod group "{}" is gone'
_TOO_FEW_PLACED = Status.unschedulable("waiting for minCount pods from a gang to be scheduled")


class GangScheduling(GangPlugin, PermitPlugin):
    """Declares the gangs of pod groups and holds their pods back until a gang is complete."""

    name = "GangScheduling"

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._are_units = handle.emulates(Behaviour.POD_GROUPS_ARE_UNITS)
        self._are_queued = self._are_units and handle.emulates(Behaviour.POD_GROUPS_ARE_QUEUED)
        self._has_preemption_policy = self._are_units and handle.feature_enabled("PodGroupPreemptionPolicy")
        has_trees = self._are_units and handle.feature_enabled("CompositePodGroup")
        self._hierarchies = handle.cluster.hierarchies if has_trees else None
        #: Only where there are trees.
        self._readiness = handle.cluster.group_readiness if has_trees else None
        self._pod_groups = PodGroupLister(handle.cluster, self._group_apis())
        self._conditions = PodGroupConditions(handle)
        self.kinds = self._pod_groups.kinds
        self.events_to_register: Sequence[EventRegistration] = (
            on(
                EventResource.UNSCHEDULABLE_POD,
                Action.ADD,
                invalidates=Invalidation.NOTHING,
                hint=self._is_schedulable_after_pod_added,
                hint_keys=lambda old, new: self._keys_of_group_of(new),
                event_filter=self._completes_a_gang,
            ),
            *(
                on(
                    EventResource.POD_GROUP if kind is PodGroup else kind,
                    Action.ADD | Action.UPDATE,
                    invalidates=Invalidation.NOTHING,
                    hint=self._is_schedulable_after_pod_group_change,
                    hint_keys=lambda old, new: self._keys_of_group(self._pod_groups.name_of(new)),
                    event_filter=self._changes_admission,
                )
                for kind in self.kinds
            ),
        )
        if self._are_units:
            deleted = on(
                EventResource.UNSCHEDULABLE_POD,
                Action.DELETE,
                invalidates=Invalidation.NOTHING,
                hint=self._is_schedulable_after_pod_deleted,
                hint_keys=lambda old, new: self._keys_of_group_of(old),
                event_filter=lambda old, new: self._completes_a_gang(None, old),
            )
            self.events_to_register = (*self.events_to_register, deleted)
        if self._hierarchies is not None:
            changed = on(
                CompositePodGroup,
                Action.ADD | Action.UPDATE,
                invalidates=Invalidation.NOTHING,
                hint=self._is_schedulable_after_composite_change,
                hint_keys=lambda old, new: self._keys_of_composite(new),
            )
            self.events_to_register = (*self.events_to_register, changed)

    def _group_apis(self) -> tuple[PodGroupAPI, ...]:
        """The APIs whose groups are gangs."""
        apis = self.handle.cluster.pod_groups.apis
        if self.handle.feature_enabled("GenericWorkload"):
            return apis
        return tuple(api for api in apis if api is not KUBERNETES)

    def hint_signature(self, pod: PodInfo) -> Hashable:
        """The group."""
        return self._pod_groups.name_for(pod) or ()

    def hint_keys(self, pod: PodInfo) -> HintKeys:
        """The group and the composite groups above it, up to the first that is missing."""
        name = self._pod_groups.name_for(pod)
        if name is None:
            return ()
        group = self._group_in_tree(name)
        if group is None or self._hierarchies is None:
            return (name,)
        parents = self._hierarchies.names_above(group)
        return (name, *(PodGroupName(COMPOSITE, name.namespace, parent) for parent in parents))

    def _keys_of_group_of(self, pod: PodInfo) -> HintKeys:
        """The keys of an event about a pod, which helps pods of the same group or tree."""
        name = self._pod_groups.name_for(pod)
        return () if name is None else self._keys_of_group(name)

    def _keys_of_group(self, name: PodGroupName) -> HintKeys:
        """The keys of an event about a group: itself, and the top of its tree if the tree may be scheduled now."""
        root = self._root_of(name)
        if not isinstance(root, CompositePodGroup) or not self._admission_to_tree(root).ok:
            return (name,)
        return name, PodGroupName(COMPOSITE, root.metadata.namespace, root.metadata.name)

    def _keys_of_composite(self, group: CompositePodGroup) -> HintKeys:
        """The keys of an event about a composite group: the pods below wait with the key of their group's parent.

        Those beside it wait with that of the top of the tree, which counts if the tree may be scheduled now.
        """
        assert self._hierarchies is not None
        groups = list(self._hierarchies.composites_below(group))
        root = self._hierarchies.root_of(group)
        if isinstance(root, CompositePodGroup) and root is not group and self._admission_to_tree(root).ok:
            groups.append(root)
        return tuple(PodGroupName(COMPOSITE, each.metadata.namespace, each.metadata.name) for each in groups)

    def may_gate(self, pod: PodInfo) -> bool:
        """Pods that name a group."""
        return self._pod_groups.name_for(pod) is not None

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Gates a pod until its group exists and enough of the group's pods are ready."""
        name = self._pod_groups.name_for(pod)
        if name is None:
            return SUCCESS
        root = self._root_of(name)
        if root is not None:
            return self._admission_to_tree(root)
        gang = self._group_gang(name)
        if gang is None:
            return Status.unresolvable(_POD_GROUP_MISSING.format(name.name))
        ready = len(gang.members.ready)
        if gang.terms is not None and gang.members.gated:
            return Status.unresolvable(_HAS_GATED_PODS.format(name))
        if ready >= gang.min_count:
            return SUCCESS
        return Status.unresolvable(_TOO_FEW_PODS.format(ready, gang.min_count, name))

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission | Status:
        """Rejects a pod while too few members have nodes. It never waits: the gang's next cycle includes the pod."""
        name = self._pod_groups.name_for(pod)
        if name is None:
            return SUCCESS
        root = self._root_of(name)
        if isinstance(root, CompositePodGroup):
            return SUCCESS  # the cycle has seen to it, for each group of the tree
        gang = self._group_gang(name) if root is None else None
        if gang is None:
            return Status.unresolvable(_POD_GROUP_GONE.format(name.name))
        return SUCCESS if len(gang.members.placed) >= gang.min_count else _TOO_FEW_PLACED

    # -- gangs ---------------------------------------------------------------------------------------------------

    def gang_of(self, pod: PodInfo) -> Gang | None:
        """The gang of a pod; None if the pod names no group or its group does not exist."""
        name = self._pod_groups.name_for(pod)
        root = None if name is None else self._root_of(name)
        if root is not None:
            return self._composite_gang(root, 1) if isinstance(root, CompositePodGroup) else None
        return None if name is None else self._group_gang(name)

    def queued_group_of(self, pod: PodInfo) -> Hashable | None:
        """The group at the top of the tree of a pod's PodGroup, if all of them exist."""
        name = self._pod_groups.name_for(pod) if self._are_queued else None
        if name is None or native_name(name) is None:
            return None
        group = self._pod_groups.get(name)
        if group is None:
            return None
        root = group if self._hierarchies is None else self._hierarchies.root_of(group)
        if root is None or root is group:
            return None if root is None else name
        return PodGroupName(COMPOSITE, root.metadata.namespace, root.metadata.name)

    def _group_gang(self, name: PodGroupName) -> Gang | None:
        """The gang of one group; None if the group does not exist."""
        group = self._pod_groups.get(name)
        if group is None:
            return None
        min_count, timeout = self._pod_groups.policy(group)
        members = self.handle.cluster.pod_groups.members(name)
        return Gang(
            name,
            group.metadata.uid,
            min_count,
            timeout,
            members,
            self._terms(name, group),
            roles=self._pod_groups.roles(group, members),
            segments=_segments_of(group),
            preferences=_preferences_of(group),
        )

    def _terms(self, name: PodGroupName, group: Any) -> GroupTerms | None:
        """What all pods of a group have in common; None for groups that are no units."""
        if not self._are_units or native_name(name) is None:
            return None
        return self._terms_of(group.spec)

    def _terms_of(self, spec: PodGroupSpec | CompositePodGroupSpec) -> GroupTerms:
        policy = (spec.preemption_policy or "PreemptLowerPriority") if self._has_preemption_policy else None
        return GroupTerms(spec.priority or 0, policy)

    # -- composite groups ----------------------------------------------------------------------------------------

    def _root_of(self, name: PodGroupName) -> CompositePodGroup | Status | None:
        """The composite group at the top of a group's tree; why there is none; None for a group without a parent."""
        group = self._group_in_tree(name)
        if group is None or self._hierarchies is None:
            return None
        root = self._hierarchies.root_of(group)
        if isinstance(root, CompositePodGroup):
            return root
        return Status.unresolvable(_NO_HIERARCHY.format(group.spec.parent_composite_pod_group_name))

    def _group_in_tree(self, name: PodGroupName) -> PodGroup | None:
        """A group that has a parent; None for another one."""
        if self._hierarchies is None or native_name(name) is None:
            return None
        group = self._pod_groups.get(name)
        return group if isinstance(group, PodGroup) and group.spec.parent_composite_pod_group_name else None

    def _composite_gang(self, group: CompositePodGroup, level: int) -> Gang:
        """The gang of a composite group at this level of its tree, the root being the first.

        It costs all pods of the tree, as does an attempt to schedule them.
        """
        assert self._hierarchies is not None
        metadata, gang = group.metadata, group.spec.scheduling_policy.gang
        children = []
        for child in self._hierarchies.children(group) if level < MAX_LEVELS else ():
            if isinstance(child, CompositePodGroup):
                children.append(self._composite_gang(child, level + 1))
            else:
                own = PodGroupName(KUBERNETES.name, child.metadata.namespace, child.metadata.name)
                children.append(self._group_gang(own) or Gang(own, "", 1, 0.0, self._members_of([])))
        name = PodGroupName(COMPOSITE, metadata.namespace, metadata.name)
        leaves = [leaf.name for child in children for leaf in child.leaves()]
        return Gang(
            name,
            metadata.uid,
            0,
            DEFAULT_SCHEDULE_TIMEOUT,
            self._members_of([leaf for leaf in leaves if isinstance(leaf, PodGroupName)]),
            self._terms_of(group.spec) if level == 1 else None,
            tuple(children),
            1 if gang is None else gang.min_group_count,
            preferences=_preferences_of(group),
        )

    def _members_of(self, names: Sequence[PodGroupName]) -> Members:
        return self.handle.cluster.pod_groups.members_of_all(names)

    def _admission_to_tree(self, root: CompositePodGroup | Status) -> Status:
        """Whether the pods of a tree may be scheduled: enough of its groups have enough pods, and none is gated."""
        if isinstance(root, Status):
            return root
        assert self._readiness is not None
        if self._readiness.has_gated(root):
            return Status.unresolvable(_HAS_GATED_PODS.format(f"{root.metadata.namespace}/{root.metadata.name}"))
        if self._readiness.is_ready(root):
            return SUCCESS
        return Status.unresolvable(_TREE_NOT_READY.format(root.metadata.name))

    def _unit_of(self, pod: PodInfo) -> Hashable:
        """The name of the group at the top of a pod's tree, which may be the pod's own group."""
        name = self._pod_groups.name_for(pod)
        return None if name is None else self._root_name(name)

    def _root_name(self, name: PodGroupName) -> PodGroupName:
        """The name of the group at the top of a group's tree; its own if it is in none, or a group above is missing."""
        group = self._group_in_tree(name)
        root = None if group is None or self._hierarchies is None else self._hierarchies.root_of(group)
        return name if root is None else PodGroupName(COMPOSITE, root.metadata.namespace, root.metadata.name)

    def _is_schedulable_after_composite_change(self, pod: PodInfo, old: Any, new: CompositePodGroup) -> bool:
        """Whether it is in the pod's own tree."""
        assert self._hierarchies is not None
        root = self._hierarchies.root_of(new)
        if root is None:
            return False
        return self._unit_of(pod) == PodGroupName(COMPOSITE, root.metadata.namespace, root.metadata.name)

    def attempt_ended(self, gang: Gang, outcome: GangOutcome, message: str) -> None:
        """Updates the condition of the group, or of all groups of a tree (semantics 4.10)."""
        for leaf in gang.leaves():
            fits = outcome is not GangOutcome.SCHEDULED or leaf is gang or _fits(leaf)
            own = outcome if fits else GangOutcome.UNSCHEDULABLE
            self._conditions.attempt_ended(leaf, own, message)

    # -- queueing hints ------------------------------------------------------------------------------------------

    def _is_schedulable_after_pod_added(self, pod: PodInfo, old: Any, new: PodInfo) -> bool:
        """Whether the added pod completes the pod's own gang."""
        return self._unit_of(pod) == self._unit_of(new) and self._completes_a_gang(old, new)

    def _completes_a_gang(self, old: Any, new: PodInfo) -> bool:
        """Whether the gang of an added pod has enough ready members now."""
        name = self._pod_groups.name_for(new)
        root = None if name is None else self._root_of(name)
        if root is not None:
            return self._admission_to_tree(root).ok
        gang = None if name is None else self._group_gang(name)
        if gang is None or (gang.terms is not None and gang.members.gated):
            return False
        return len(gang.members.ready) >= gang.min_count

    def _is_schedulable_after_pod_deleted(self, pod: PodInfo, old: PodInfo, new: None) -> bool:
        """Whether the deleted pod was the last gated one of the pod's own group."""
        return self._unit_of(pod) == self._unit_of(old) and self._completes_a_gang(None, pod)

    def _is_in_tree_of(self, pod: PodInfo, group: Any) -> bool:
        """Whether a group is in the same tree as the group of a pod."""
        if self._hierarchies is None or not isinstance(group, PodGroup):
            return False
        root = self._root_name(self._pod_groups.name_of(group))
        return root.api == COMPOSITE and root == self._unit_of(pod)

    def _is_schedulable_after_pod_group_change(self, pod: PodInfo, old: Any, new: Any) -> bool:
        """Whether it is the pod's own group, and new or with another policy."""
        groups = self._pod_groups
        if groups.name_for(pod) != groups.name_of(new) and not self._is_in_tree_of(pod, new):
            return False
        return self._changes_admission(old, new)

    def _changes_admission(self, old: Any, new: Any) -> bool:
        """Whether a pod group is new, or has another policy."""
        return old is None or self._pod_groups.policy(old) != self._pod_groups.policy(new)


def _fits(gang: Gang) -> bool:
    """Whether enough members of a group without children have nodes."""
    return len(gang.members.placed) >= max(1, gang.min_count)


_SCHEDULED = "Scheduled"
_MEANINGS = {
    _SCHEDULED: "True: so many pods of the group are placed that it may run.",
    REASON_UNSCHEDULABLE: "False: too few pods of the group fit, or they wait for preemption.",
    REASON_SCHEDULER_ERROR: "False: the attempt failed; it is repeated after a backoff.",
}
_POD_GROUP_SCHEDULED = ConditionType("PodGroupScheduled", "PodGroup", _MEANINGS)
_POD_GROUP_INITIALLY_SCHEDULED = ConditionType("PodGroupInitiallyScheduled", "PodGroup", _MEANINGS)
_REASONS = {
    GangOutcome.SCHEDULED: _SCHEDULED,
    GangOutcome.UNSCHEDULABLE: REASON_UNSCHEDULABLE,
    GangOutcome.WAITING_ON_PREEMPTION: REASON_UNSCHEDULABLE,
    GangOutcome.ERROR: REASON_SCHEDULER_ERROR,
}
_CONFLICT = 409
#: How long to wait for the watch to deliver a written group, in seconds.
_WATCH_TIMEOUT = 10.0


class PodGroupConditions:
    """Patches the conditions of groups in the background: the outcomes of scheduling them (semantics 4.10).

    It is PodGroupInitiallyScheduled since Behaviour.POD_GROUPS_ARE_INITIALLY_SCHEDULED, PodGroupScheduled before.
    A condition is True or False with a reason and a message, and never changes from True to False. At most one write
    per group is in flight; of the outcomes that arrive meanwhile, only the latest is written.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._pod_groups = handle.cluster.catalog(PodGroup)
        is_initial = handle.emulates(Behaviour.POD_GROUPS_ARE_INITIALLY_SCHEDULED)
        self._type = (_POD_GROUP_INITIALLY_SCHEDULED if is_initial else _POD_GROUP_SCHEDULED).type
        #: The latest outcome and its message of each group with a write in flight.
        self._latest: dict[PodGroupName, tuple[GangOutcome, str]] = {}

    def attempt_ended(self, gang: Gang, outcome: GangOutcome, message: str) -> None:
        """Write the outcome of an attempt to schedule a gang; groups of other APIs do not have the condition."""
        name = native_name(gang.name)
        if name is None:
            return
        in_flight = name in self._latest
        if in_flight and self._latest[name][0] is GangOutcome.SCHEDULED:
            return  # the condition will be True, and remains so
        self._latest[name] = outcome, message
        if not in_flight:
            self._handle.spawn(self._write_latest(name))

    async def _write_latest(self, name: PodGroupName) -> None:
        """Write the latest outcome of a group until no newer one has arrived."""
        written = None
        try:
            while (latest := self._latest[name]) != written:
                if await self._write(name, *latest):
                    written = latest
        finally:
            del self._latest[name]

    async def _write(self, name: PodGroupName, outcome: GangOutcome, message: str) -> bool:
        """Patch the condition once; False after a conflict."""
        group = self._pod_groups.get(name.namespace, name.name)
        changes = self._changes(group, outcome, message) if group is not None else None
        if group is None or changes is None:
            return True
        try:
            await self._handle.patch(group, changes, subresource="status")
            written = True
        except APIError as error:
            if error.code != _CONFLICT:
                raise
            written = False
        await self._handle.wait_for(
            lambda: True if self._pod_groups.get(name.namespace, name.name) is not group else None, _WATCH_TIMEOUT
        )
        return written

    def _changes(self, group: PodGroup, outcome: GangOutcome, message: str) -> dict[str, Any] | None:
        """The merge patch that sets the condition; None if there is nothing to change."""
        current = next((c for c in group.status.conditions if c.type == self._type), None)
        status = "True" if outcome is GangOutcome.SCHEDULED else "False"
        if current is not None and current.status == "True" and status == "False":
            return None
        transition_time: str | None = timestamp(self._handle.now())
        if current is not None and current.status == status:
            transition_time = current.last_transition_time
        condition = Condition(
            type=self._type,
            status=status,
            reason=_REASONS[outcome],
            message=message,
            observed_generation=group.metadata.generation,
            last_transition_time=transition_time,
        )
        if condition == current:
            return None
        others = [other for other in group.status.conditions if other.type != self._type]
        return {"status": {"conditions": [_with_required_fields(each) for each in (*others, condition)]}}


def _with_required_fields(condition: Condition) -> dict[str, Any]:
    """The JSON of a condition, with the fields that the API requires even if they are empty."""
    required = {"message": "", "reason": "", "lastTransitionTime": condition.last_transition_time}
    return required | dict(msgspec.to_builtins(condition))


#: How long placed members wait for each other before they are bound, in seconds, where the group sets no timeout.
DEFAULT_SCHEDULE_TIMEOUT = 300.0


SEGMENT_SIZE, SEGMENT_TOPOLOGY = "kubestow.dev/segment-size", "kubestow.dev/segment-topology"
"""Annotations of a pod group of any API: how many pods a segment has, and the key of the node label of its domain."""

PREFERRED_TOPOLOGY = "kubestow.dev/preferred-topology"
"""Annotation with keys of node labels, the best first: the group is in one domain of a key if it fits there."""

SEGMENT_PREFERRED_TOPOLOGY = "kubestow.dev/segment-preferred-topology"
"""The same for each segment; without ``segment-topology`` the pods may be anywhere if the segments fit nowhere."""


def _segments_of(group: Any) -> Segments | None:
    """The segments that a group requires by annotations. Raises ValueError, which is an error of its pods."""
    annotations = group.metadata.annotations
    size, key = annotations.get(SEGMENT_SIZE, ""), annotations.get(SEGMENT_TOPOLOGY, "")
    preferred = annotations.get(SEGMENT_PREFERRED_TOPOLOGY, "")
    if not size and not key and not preferred:
        return None
    if not (key or preferred) or not size.isdecimal() or not int(size):
        raise ValueError(f'{SEGMENT_SIZE} is "{size}" and {SEGMENT_TOPOLOGY} is "{key}", expected a number and a key')
    return Segments(key, int(size)) if key else None


def _preferences_of(group: Any) -> tuple[Preference, ...]:
    """The terms that a group prefers by annotations to those that it requires, the best first.

    A narrow domain of the whole group comes before narrow domains of its segments.
    """
    annotations = group.metadata.annotations
    levels = _keys(annotations.get(PREFERRED_TOPOLOGY, ""))
    of_segments = _keys(annotations.get(SEGMENT_PREFERRED_TOPOLOGY, ""))
    if not levels and not of_segments:
        return ()
    required = _segments_of(group)
    size = int(annotations.get(SEGMENT_SIZE, "0"))
    segments = [*(Segments(key, size) for key in of_segments), required]
    return tuple(Preference(level, each) for level in (*levels, "") for each in segments)[:-1]


def _keys(text: str) -> list[str]:
    """The keys in an annotation, separated by commas."""
    return [key.strip() for key in text.split(",") if key.strip()]


class PodGroupLister:
    """The pod groups of some APIs in the cluster cache."""

    def __init__(self, cluster: Cluster, apis: Iterable[PodGroupAPI]) -> None:
        self._apis = tuple(apis)
        self._catalogs = {api.name: cluster.catalog(api.kind) for api in self._apis}
        self._by_kind = {api.kind: api for api in self._apis}
        self.kinds = tuple(self._by_kind)

    def name_for(self, info: PodInfo) -> PodGroupName | None:
        """The group that a pod names; of several, the one whose API comes first."""
        pod = info.pod
        for api in self._apis:
            if name := api.group_of(pod):
                return PodGroupName(api.name, info.namespace, name)
        return None

    def get(self, name: PodGroupName) -> Any | None:
        """A group by name, None if it does not exist."""
        return self._catalogs[name.api].get(name.namespace, name.name)

    def name_of(self, group: Any) -> PodGroupName:
        """The name by which pods refer to a group."""
        return PodGroupName(self._by_kind[type(group)].name, group.metadata.namespace, group.metadata.name)

    def roles(self, group: Any, members: Members) -> tuple[Role, ...]:
        """The roles of which a group needs a number of pods each, with the members that have them."""
        api = self._by_kind[type(group)]
        return tuple(
            Role(role, least, frozenset(uid for uid, info in members.pods.items() if api.role_of(info.pod) == role))
            for role, least in api.min_by_role(group).items()
        )

    def policy(self, group: Any) -> tuple[int, float]:
        """The number of pods that a group needs at the same time, and how long they wait for each other in seconds."""
        min_count, timeout = self._by_kind[type(group)].gang_policy(group)
        return min_count, float(timeout) if timeout else DEFAULT_SCHEDULE_TIMEOUT
