"""The cluster a moment ago, and the changes before and after: the states between which a scheduler decides.

What a watch delivers is applied to one cluster cache, but later: until then it is ahead of the cache. So a decision can
be looked at in the state that preceded it when all that happened around it is known, and nothing has to be undone. The
recent changes are kept, each with the object before and after it, so the cache can be put into an earlier or a later
state and back: only objects that differ are applied. Memory is bounded by the number of changes, whose objects are
mostly shared with the cache.

A scheduler that decides about a pod does not see the state that this watch has delivered by then. Its watches are other
ones, each with a delay of its own, and what it has written itself it knows before any watch: pods that it has decided
about are assumed on their nodes until their bindings, which it sends concurrently, are confirmed. A :class:`Moment`
says which of the recent changes a decision may have been based on: for each resource those up to a point, and any of
the scheduler's own bindings and nominations that it may have decided on before.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

from msgspec import structs

from kubestow.api.core import Pod
from kubestow.rules.pods import is_terminal
from kubestow.scheduling.events.resources import PODS
from kubestow.scheduling.events.watch_cache import WatchCache
from kubestow.scheduling.interfaces import Resource

Key = tuple[str, str]
ObjectID = tuple[str, str, Key]

MOST_CHANGES = 8192
"""So many changes are kept, and of so many objects when they were created."""


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """One change of an object, None for one that is not there; ``number`` counts changes, ``time`` is in seconds.

    ``is_own`` says that the scheduler itself has made it: it has bound the pod, or nominated it. ``version`` is the
    resourceVersion as a number, by which changes of all kinds are in the order in which the API server made them; 0 if
    it is not known.
    """

    number: int
    time: float
    resource: Resource
    key: Key
    old: Any
    new: Any
    is_own: bool
    version: int = 0

    @property
    def object_id(self) -> ObjectID:
        """What identifies the object."""
        return self.resource.prefix, self.resource.plural, self.key

    @property
    def is_deletion(self) -> bool:
        """Whether the object is gone."""
        return self.new is None

    @property
    def node_name(self) -> str:
        """The node that it is about, "" if that is not known."""
        if self.resource != PODS:
            return "" if self.resource.namespaced else self.key[1]
        for pod in (self.new, self.old):
            if pod is not None and (node := pod.spec.node_name or pod.status.nominated_node_name):
                return str(node)
        return ""

    @property
    def text(self) -> str:
        """What has changed, in a few words."""
        name = f"{self.resource.kind} {'/'.join(filter(None, self.key))}"
        if self.is_own and self.new is not None and self.new.spec.node_name:
            return f"the binding of {name} to {self.new.spec.node_name}"
        what = "the creation" if self.old is None else "the deletion" if self.new is None else "a change"
        return f"{what} of {name}"


@dataclass(frozen=True, slots=True)
class Moment:
    """A state that a decision may have been based on.

    Of each resource (by plural) the changes with numbers below ``upto`` have happened, without an entry those below
    ``number``; of the scheduler's own changes exactly those in ``own``.
    """

    number: int
    own: frozenset[int]
    upto: tuple[tuple[str, int], ...] = ()
    #: Changes that are consequences of the decision, and so have not happened.
    effects: frozenset[int] = frozenset()
    #: Pods that were deleted before the watch showed a binding, with the nodes on which they were assumed.
    assumed: tuple[tuple[ObjectID, str], ...] = ()

    def has(self, change: Change) -> bool:
        """Whether a change has happened."""
        if change.number in self.effects:
            return False
        if change.is_own:
            return change.number in self.own
        return change.number < self.reached(change.resource.plural)

    def reached(self, plural: str) -> int:
        """The changes of a resource with numbers below this one have happened, the scheduler's own apart."""
        for of_resource, number in self.upto:
            if of_resource == plural:
                return number
        return self.number


class StateHistory:
    """A cache that follows a watch at a distance, and the changes around its state.

    A change that has been received is ``ahead`` of the cache until :meth:`advance` applies it, in the order of arrival.
    ``scheduler_names`` are those of the scheduler whose bindings and nominations are its own changes.
    """

    def __init__(self, cache: WatchCache, scheduler_names: Container[str], *, most: int = MOST_CHANGES) -> None:
        self.cache = cache
        self._scheduler_names = scheduler_names
        self._changes: deque[Change] = deque(maxlen=most)
        #: The number of the change that created each object, of those that were created last.
        self._created: dict[ObjectID, int] = {}
        self._next_number = 0
        #: The changes that have not been applied yet, and the last of each object.
        self.ahead: deque[Change] = deque()
        self._last_ahead: dict[ObjectID, Change] = {}
        #: While the cache is in another state: the way there.
        self._journey: _Journey | None = None

    # -- what the watch delivers -------------------------------------------------------------------------------------

    def receive_list(self, resource: Resource, objects: Sequence[Any], time: float) -> list[Change]:
        """What a complete list changes. The first lists are applied at once and are no changes."""
        if not self.cache.synced:
            self.cache.replace(resource, objects)
            return []
        self.go_back()
        listed = {(obj.metadata.namespace, obj.metadata.name): obj for obj in objects}
        self.cache.drop_unreadable(resource, listed)
        known = dict.fromkeys(self.cache.keys(resource))
        known |= {each.key: None for each in self._last_ahead.values() if each.resource == resource}
        found = [self._change(resource, key, None, time) for key in known if key not in listed]
        found += [self._change(resource, key, obj, time) for key, obj in listed.items()]
        changes = [change for change in found if change is not None]
        for change in changes:
            self._keep(change)
        return changes

    def receive(self, resource: Resource, event_type: str, obj: Any, time: float) -> Change | None:
        """What a watch event changes; None if it repeats what is known."""
        key = (obj.metadata.namespace, obj.metadata.name)
        version = obj.metadata.resource_version
        change = self._change(resource, key, None if event_type == "DELETED" else obj, time, version)
        if change is not None:
            self._keep(change)
        elif event_type == "DELETED":
            self.cache.apply(resource, event_type, obj)  # it may have been unreadable
        return change

    def advance(self) -> None:
        """Apply the first change that is ahead, to the state that the cache has followed the watch to."""
        self.go_back()
        change = self.ahead.popleft()
        if self._last_ahead[change.object_id] is change:
            del self._last_ahead[change.object_id]
        self.cache.restore(change.resource, change.key, change.new)

    def _change(self, resource: Resource, key: Key, new: Any, time: float, version: str = "") -> Change | None:
        last = self._last_ahead.get((resource.prefix, resource.plural, key))
        if last is not None:
            old = last.new
        else:
            old = (self._journey or self.cache).observed(resource, key)
        if resource == PODS and new is not None and is_terminal(new.status.phase):
            new = None
        if resource == PODS and old is not None and new is not None and old.metadata.uid != new.metadata.uid:
            old = None  # deleted and created again, which no scheduler confuses
        if old is None and new is None:
            return None
        if old is not None and new is not None and _alike(old, new):
            return None
        number = self._next_number
        self._next_number += 1
        is_own = self._is_own(resource, old, new)
        return Change(number, time, resource, key, old, new, is_own, int(version) if version.isdecimal() else 0)

    def _is_own(self, resource: Resource, old: Any, new: Any) -> bool:
        if resource != PODS or old is None or new is None or old.spec.scheduler_name not in self._scheduler_names:
            return False
        if old.spec.node_name:
            return False
        nominated = new.status.nominated_node_name
        return bool(new.spec.node_name or (nominated and nominated != old.status.nominated_node_name))

    def _keep(self, change: Change) -> None:
        """Keep a change if a decision may depend on it; before everything has been listed, it is applied at once."""
        if change.old is None:
            self._created.pop(change.object_id, None)
            self._created[change.object_id] = change.number
            if len(self._created) > MOST_CHANGES:
                del self._created[next(iter(self._created))]
        if _matters(change):
            self._changes.append(change)
        self.ahead.append(change)
        self._last_ahead[change.object_id] = change
        if not self.cache.synced:
            self.advance()

    def reaches(self, number: int) -> bool:
        """Whether all kept changes from a number on are still there."""
        is_full = len(self._changes) == self._changes.maxlen
        return not is_full or self._changes[0].number <= number

    # -- other states ------------------------------------------------------------------------------------------------

    def since(self, time: float) -> list[Change]:
        """The kept changes since a time, the oldest first; those that are ahead are among them."""
        found = []
        for change in reversed(self._changes):
            if change.time < time:
                break
            found.append(change)
        return found[::-1]

    @property
    def created(self) -> Mapping[ObjectID, int]:
        """The number of the change that created each object, of those that were created recently."""
        return self._created

    def go_to(self, moment: Moment, changes: Sequence[Change]) -> None:
        """Put the cache into its state at a moment, until :meth:`go_back`; only objects that differ are applied.

        ``changes`` are those, in order, that may have happened or not. Changes can be received meanwhile, and moments
        of the same changes follow one another without a way back.
        """
        if self._journey is None:
            reached = self.ahead[0].number if self.ahead else self._next_number
            self._journey = _Journey(self.cache, changes, reached)
        self._journey.go_to(moment)

    def go_back(self) -> None:
        """Put the cache into the state to which it has followed the watch, if it is in another one."""
        if self._journey is not None:
            self._journey.end()
            self._journey = None


_UNMOVED = object()


class _Journey:
    """Puts a cache, in which the changes below a number have happened (``reached``), into states at moments."""

    def __init__(self, cache: WatchCache, changes: Sequence[Change], reached: int) -> None:
        self._cache, self._changes = cache, changes
        self._moment = Moment(
            reached, frozenset(change.number for change in changes if change.is_own and change.number < reached)
        )
        #: Each object that has been put into another state: as it was before, and as it is now.
        self._before: dict[ObjectID, tuple[Resource, Any]] = {}
        self._now: dict[ObjectID, Any] = {}

    @cached_property
    def _by_number(self) -> dict[int, Change]:
        return {change.number: change for change in self._changes}

    @cached_property
    def _by_object(self) -> dict[ObjectID, list[Change]]:
        found: dict[ObjectID, list[Change]] = {}
        for change in self._changes:
            found.setdefault(change.object_id, []).append(change)
        return found

    @cached_property
    def _by_others(self) -> dict[str, list[Change]]:
        """Changes that are not the scheduler's own, by kind, in order."""
        found: dict[str, list[Change]] = {}
        for change in self._changes:
            if not change.is_own:
                found.setdefault(change.resource.plural, []).append(change)
        return found

    def go_to(self, moment: Moment) -> None:
        """Apply the objects whose states differ from those at the last moment."""
        for object_id in self._between(self._moment, moment):
            changes = self._by_object.get(object_id)
            if changes is None:
                continue
            resource, key = changes[0].resource, changes[0].key
            current = self._now[object_id] if object_id in self._now else self._cache.observed(resource, key)
            obj = _state(changes, moment)
            if obj is current or (obj is not None and current is not None and _alike(obj, current)):
                continue
            self._before.setdefault(object_id, (resource, current))
            self._now[object_id] = obj
            self._cache.restore(resource, key, obj)
        self._moment = moment

    def observed(self, resource: Resource, key: Key) -> Any:
        """An object as it was before, None if there was none."""
        _, obj = self._before.get((resource.prefix, resource.plural, key), (resource, _UNMOVED))
        return self._cache.observed(resource, key) if obj is _UNMOVED else obj

    def end(self) -> None:
        """Put everything into the state before."""
        for object_id, (resource, obj) in self._before.items():
            if self._now[object_id] is not obj:
                self._cache.restore(resource, object_id[2], obj)

    def _between(self, one: Moment, other: Moment) -> Iterable[ObjectID]:
        """The objects of which any change has happened at only one of two moments."""
        numbers = (one.own ^ other.own) | (one.effects ^ other.effects)
        found = {self._by_number[number].object_id for number in numbers if number in self._by_number}
        if one.assumed != other.assumed:
            found.update(object_id for object_id, _ in (*one.assumed, *other.assumed))
        if (one.number, one.upto) != (other.number, other.upto):
            for plural, changes in self._by_others.items():
                first, last = sorted((one.reached(plural), other.reached(plural)))
                begin, end = (bisect_left(changes, number, key=_number) for number in (first, last))
                found.update(change.object_id for change in changes[begin:end])
        return found


_number = attrgetter("number")


def _state(changes: Sequence[Change], moment: Moment) -> Any:
    """The state of the object of some changes at a moment.

    A pod that the scheduler has not decided about yet is not on a node, whatever the watch has delivered since; one
    that it has decided about is, even if the watch had delivered less by then.
    """
    obj, is_held = changes[0].old, False
    for object_id, node_name in moment.assumed:
        if object_id == changes[0].object_id:
            pod = changes[-1].old
            return structs.replace(pod, spec=structs.replace(pod.spec, node_name=node_name))
    for change in changes:
        if change.is_own:
            if moment.has(change):
                obj, is_held = change.new, False
            else:
                is_held = True
        elif moment.has(change) and (change.is_deletion or not is_held):
            obj = change.new
    return obj


def _alike(old: Any, new: Any) -> bool:
    """Whether two states of an object differ in their resourceVersions at most."""
    if old.metadata.resource_version == new.metadata.resource_version:
        return bool(old == new)
    version = new.metadata.resource_version
    metadata = structs.replace(old.metadata, resource_version=version)
    return bool(structs.replace(old, metadata=metadata) == new)


def _matters(change: Change) -> bool:
    """Whether a decision about another pod may depend on a change.

    It does not on most states of a running pod, nor on the creation of one that has no node yet. That one without a
    node is deleted does matter: the scheduler may have assumed it on a node.
    """
    old, new = change.old, change.new
    if change.resource != PODS or new is None:
        return True
    if old is None:
        return bool(change.node_name)
    return _read(old) != _read(new)


def _read(pod: Pod) -> tuple[Any, ...]:
    """What decisions about other pods, and later ones about this one, read of a pod."""
    meta, status = pod.metadata, pod.status
    return (
        pod.spec,
        meta.labels,
        meta.deletion_timestamp,
        status.nominated_node_name,
        status.start_time,
        status.container_statuses,
        status.resources,
        status.resource_claim_statuses,
        status.extended_resource_claim_status,
    )
