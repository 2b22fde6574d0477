"""Exhaustive exploration of the protocol by which pods are assumed, bound, confirmed and forgotten.

This is a model, not the scheduler: two schedulers that share two nodes and see them through watches that lag, three
pods, and an API server that loses requests and answers. Every order of every action is explored, up to a number of
faults and deletions, so that within these bounds nothing is left to chance. What the scheduler itself does is for the
simulation to check; the model checks that the protocol which it follows can hold.

    a scheduler assumes a pod on a node that has capacity as far as it knows, and sends the binding
    the server binds a pod once, and refuses to bind one that is bound or deleted
    the watch shows a pod on a node, which ends the assumption, or shows its deletion
    an answer that is a refusal, or that is lost, has the scheduler read the pod, and forget it unless it is bound there

The laws: the pods of one scheduler never exceed a node's capacity; when nothing is on the way, every cache equals the
server and nothing is assumed; and from every state that can be reached, without any further fault, a state can be
reached in which every pod is bound that fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

#: The places of a pod other than the number of its node.
_UNBOUND, _DELETED = -1, -2
#: The scheduler of each pod, and how many pods each node can run.
_OWNERS, _CAPACITY = (0, 1, 0), (1, 2)


class _Request(NamedTuple):
    """A binding that is on the way: ``sent``, answered with success (``done``) or refused, or its answer was lost.

    ``late`` is that of a client that has given up already, and that may still arrive.
    """

    stage: str
    node: int


class State(NamedTuple):
    """A state of the whole system; tuples are by pod, or by scheduler and pod."""

    server: tuple[int, ...]
    caches: tuple[tuple[int, ...], ...]
    assumed: tuple[int, ...]
    requests: tuple[_Request | None, ...]
    late: tuple[int, ...]
    #: The changes, as pod and place, that each watch has yet to deliver.
    events: tuple[tuple[tuple[int, int], ...], ...]
    faults: int
    deletions: int


@dataclass(frozen=True)
class Protocol:
    """Which protocol is explored. Each field that is not the default breaks a law."""

    reads_after_lost_answer: bool = True
    counts_assumed_pods: bool = True
    confirms: bool = True
    #: Whether the server may carry out a request after its client has given up and read the pod.
    requests_arrive_late: bool = False


@dataclass(frozen=True)
class Exploration:
    """What was explored: all states and transitions, the longest of the shortest paths, and the violations.

    Each violation has the law and the actions that lead to it.
    """

    states: int
    transitions: int
    depth: int
    violations: Mapping[str, Sequence[str]]


def explore(*, faults: int, deletions: int, protocol: Protocol | None = None) -> Exploration:
    """Explore every state that can be reached with so many faults and deletions at most.

    It ends early where a law is broken, after all states that are as near.
    """
    protocol = protocol or Protocol()
    pods, schedulers = len(_OWNERS), max(_OWNERS) + 1
    first = State(
        server=(_UNBOUND,) * pods,
        caches=((_UNBOUND,) * pods,) * schedulers,
        assumed=(_UNBOUND,) * pods,
        requests=(None,) * pods,
        late=(_UNBOUND,) * pods,
        events=((),) * schedulers,
        faults=faults,
        deletions=deletions,
    )
    origin: dict[State, tuple[State, str] | None] = {first: None}
    #: The states that lead to a state without a fault.
    before: dict[State, list[State]] = {}
    frontier, depth, transitions = [first], 0, 0
    found: dict[str, State] = {}
    goals: list[State] = []
    while frontier:
        following: list[State] = []
        for state in frontier:
            for law in _broken_laws(state):
                found.setdefault(law, state)
            if _is_goal(state):
                goals.append(state)
            for action, after in _transitions(state, protocol):
                transitions += 1
                if after.faults == state.faults and after.deletions == state.deletions:
                    before.setdefault(after, []).append(state)
                if after not in origin:
                    origin[after] = state, action
                    following.append(after)
        if found:
            break
        frontier = following
        depth += bool(following)
    stuck = None if found else _stuck(origin, before, goals)
    if stuck is not None:
        found["every pod that fits can still be bound"] = stuck
    return Exploration(len(origin), transitions, depth, {law: _path(state, origin) for law, state in found.items()})


def _stuck(origin: Iterable[State], before: Mapping[State, Sequence[State]], goals: Iterable[State]) -> State | None:
    """The first state from which no goal can be reached, None if there is none."""
    live = set(goals)
    waiting = list(live)
    while waiting:
        for state in before.get(waiting.pop(), ()):
            if state not in live:
                live.add(state)
                waiting.append(state)
    return next((state for state in origin if state not in live), None)


def _path(state: State, origin: Mapping[State, tuple[State, str] | None]) -> list[str]:
    actions = []
    while (step := origin[state]) is not None:
        state, action = step
        actions.append(action)
    return actions[::-1]


def _set(values: tuple[int, ...], position: int, value: int) -> tuple[int, ...]:
    return (*values[:position], value, *values[position + 1 :])


def _with_request(state: State, pod: int, request: _Request | None, **changes: Any) -> State:
    requests = (*state.requests[:pod], request, *state.requests[pod + 1 :])
    return state._replace(requests=requests, **changes)


def _changed(state: State, pod: int, place: int) -> State:
    """The server changes a pod, and every watch will show it."""
    return state._replace(
        server=_set(state.server, pod, place), events=tuple((*queue, (pod, place)) for queue in state.events)
    )


def _transitions(state: State, protocol: Protocol) -> Iterator[tuple[str, State]]:
    """Every action that is possible, with the state after it."""
    for pod in range(len(_OWNERS)):
        request = state.requests[pod]
        if request is None:
            yield from _decisions(state, pod, protocol)
        else:
            yield from _steps_of_request(state, pod, request, protocol)
        if (node := state.late[pod]) != _UNBOUND:
            after = state._replace(late=_set(state.late, pod, _UNBOUND))
            if state.server[pod] == _UNBOUND:
                after = _changed(after, pod, node)
            yield f"the late binding of pod {pod} to node {node} arrives", after
        if state.deletions and state.server[pod] != _DELETED:
            yield f"pod {pod} is deleted", _changed(state, pod, _DELETED)._replace(deletions=state.deletions - 1)
    for scheduler, queue in enumerate(state.events):
        if queue:
            yield f"scheduler {scheduler} sees pod {queue[0][0]}", _delivered(state, scheduler, protocol)
            if state.faults:
                yield f"scheduler {scheduler} lists all pods", _relisted(state, scheduler, protocol)


def _decisions(state: State, pod: int, protocol: Protocol) -> Iterator[tuple[str, State]]:
    owner = _OWNERS[pod]
    if state.caches[owner][pod] != _UNBOUND or state.assumed[pod] != _UNBOUND:
        return
    for node, capacity in enumerate(_CAPACITY):
        if len(_known_on(state, owner, node, protocol)) < capacity:
            after = _with_request(state, pod, _Request("sent", node), assumed=_set(state.assumed, pod, node))
            yield f"scheduler {owner} sends pod {pod} to node {node}", after


def _known_on(state: State, scheduler: int, node: int, protocol: Protocol) -> set[int]:
    """The pods on a node, as a scheduler knows them: those it was shown, and those it has assumed."""
    cached = {pod for pod, place in enumerate(state.caches[scheduler]) if place == node}
    if not protocol.counts_assumed_pods:
        return cached
    return cached | {pod for pod, place in enumerate(state.assumed) if place == node and _OWNERS[pod] == scheduler}


def _steps_of_request(state: State, pod: int, request: _Request, protocol: Protocol) -> Iterator[tuple[str, State]]:
    node = request.node
    match request.stage:
        case "sent":
            if state.server[pod] == _UNBOUND:
                yield (
                    f"pod {pod} is bound to node {node}",
                    _with_request(_changed(state, pod, node), pod, _Request("done", node)),
                )
            else:
                yield f"the binding of pod {pod} is refused", _with_request(state, pod, _Request("doubted", node))
            if state.faults:
                lost = _with_request(state, pod, _Request("doubted", node), faults=state.faults - 1)
                yield f"the binding of pod {pod} is lost", lost
                if protocol.requests_arrive_late and state.late[pod] == _UNBOUND:
                    yield f"the binding of pod {pod} is late", lost._replace(late=_set(state.late, pod, node))
        case "done":
            yield f"the answer for pod {pod} arrives", _with_request(state, pod, None)
            if state.faults:
                lost = _with_request(state, pod, _Request("doubted", node), faults=state.faults - 1)
                yield f"the answer for pod {pod} is lost", lost
        case "doubted":
            is_bound = protocol.reads_after_lost_answer and state.server[pod] == node
            assumed = state.assumed if is_bound else _set(state.assumed, pod, _UNBOUND)
            yield f"pod {pod} is read", _with_request(state, pod, None, assumed=assumed)


def _shown(state: State, scheduler: int, pod: int, place: int, protocol: Protocol) -> State:
    """A watch shows a pod; that on a node, or deleted, it is not assumed any more."""
    cache = _set(state.caches[scheduler], pod, place)
    caches = (*state.caches[:scheduler], cache, *state.caches[scheduler + 1 :])
    ends = place != _UNBOUND and _OWNERS[pod] == scheduler and protocol.confirms
    return state._replace(caches=caches, assumed=_set(state.assumed, pod, _UNBOUND) if ends else state.assumed)


def _delivered(state: State, scheduler: int, protocol: Protocol) -> State:
    (pod, place), *rest = state.events[scheduler]
    events = (*state.events[:scheduler], tuple(rest), *state.events[scheduler + 1 :])
    return _shown(state._replace(events=events), scheduler, pod, place, protocol)


def _relisted(state: State, scheduler: int, protocol: Protocol) -> State:
    """The watch breaks: what it has yet to deliver is lost, and a list has the state of the server instead."""
    events = (*state.events[:scheduler], (), *state.events[scheduler + 1 :])
    state = state._replace(events=events, faults=state.faults - 1)
    for pod, place in enumerate(state.server):
        state = _shown(state, scheduler, pod, place, protocol)
    return state


def _is_quiescent(state: State) -> bool:
    return not any(state.requests) and not any(state.events) and set(state.late) == {_UNBOUND}


def _is_goal(state: State) -> bool:
    """Whether nothing is on the way, and no unbound pod fits on a node."""
    if not _is_quiescent(state) or set(state.assumed) != {_UNBOUND}:
        return False
    is_full = all(state.server.count(node) >= capacity for node, capacity in enumerate(_CAPACITY))
    return is_full or _UNBOUND not in state.server


def _broken_laws(state: State) -> Iterator[str]:
    for scheduler in range(max(_OWNERS) + 1):
        own = [place for pod, place in enumerate(state.server) if _OWNERS[pod] == scheduler]
        if any(own.count(node) > capacity for node, capacity in enumerate(_CAPACITY)):
            yield "no node has more pods of a scheduler than it can run"
    if _is_quiescent(state):
        if any(cache != state.server for cache in state.caches):
            yield "at rest every cache equals the server"
        if set(state.assumed) != {_UNBOUND}:
            yield "at rest nothing is assumed"
