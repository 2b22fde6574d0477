"""The args of the plugin JobQueues: queues and their limits, flavors of nodes, fair share, backfill and preemption.

Everything is checked when the scheduler starts, and every mistake names its field.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from kubestow.api.formats.duration import Duration
from kubestow.api.formats.quantity import Quantity
from kubestow.errors import InvalidQuantity
from kubestow_contrib.shares import Amounts, amounts_of

BackfillMode = Literal["none", "easy", "conservative"]
"""``none``: strictly in order; ``easy``: the first job that does not fit gets a reservation; ``conservative``: all."""


class Flavor(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
    """A flavor of node. A node belongs to the first one whose labels it has; the pods of a job get one flavor each."""

    name: str
    node_labels: dict[str, str]


class Amount(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
    """What a queue is guaranteed, and its limit, on nodes of a flavor; without a flavor, on all nodes together.

    What a queue uses above ``guaranteed`` and up to its ``limit`` is borrowed. A resource without a limit has none.
    """

    flavor: str = ""
    guaranteed: dict[str, Quantity] = {}
    limit: dict[str, Quantity] = {}


class QueueArgs(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
    """A queue. ``weight`` is that of its share among its siblings, after those of higher ``priority``."""

    name: str
    parent: str = ""
    weight: float = 1.0
    priority: int = 0
    amounts: list[Amount] = []


class FairShareArgs(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
    """``usage_half_life``: how fast usage is forgotten, ``0s`` at once. ``usage_factor``: how much it lowers weights.

    With ``enabled: false`` the queues' jobs are in one order, by priority and age.
    """

    enabled: bool = True
    usage_half_life: str = "0s"
    usage_factor: float = 1.0


class BackfillArgs(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
    """``depth`` is the number of waiting jobs that a round looks at; those after it keep waiting.

    ``reservations`` is the number of jobs that get reserved starts if the mode is ``conservative``.
    """

    mode: BackfillMode = "easy"
    depth: int = 500
    reservations: int = 100


class PreemptionArgs(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
    """``within_queue``: jobs of higher priority evict others of their queue. ``reclaim``: those of queues below their
    fair share evict jobs of queues above theirs. No job is evicted before it has run for ``min_run_time``.
    """

    within_queue: bool = False
    reclaim: bool = False
    min_run_time: str = "0s"


class JobQueuesArgs(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The args of the plugin; ``queues`` and ``flavors`` may also be in a YAML or JSON file, ``queues_file``.

    Pods name their queue by the label or annotation ``kubestow.dev/queue``, or else by one of ``queue_keys``. Those
    that name none are in that of their namespace (``namespace_queues``), or else in ``default_queue``; without these,
    they are no concern of the plugin.
    ``assumed_run_time`` is that of jobs about which nothing is known. A job that has waited for ``max_wait`` comes
    before all jobs that have not. Rounds of planning are ``interval`` apart, and a job of unknown size is complete once
    no pod has joined it for ``settle_time``. An admitted job whose pods do not all get nodes within
    ``placement_timeout`` waits again.
    """

    queues: list[QueueArgs] = []
    flavors: list[Flavor] = []
    queues_file: str = ""
    default_queue: str = ""
    queue_keys: list[str] = []
    namespace_queues: dict[str, str] = {}
    fair_share: FairShareArgs = FairShareArgs()
    backfill: BackfillArgs = BackfillArgs()
    preemption: PreemptionArgs = PreemptionArgs()
    assumed_run_time: str = "24h"
    max_wait: str = "0s"
    interval: str = "1s"
    settle_time: str = "1s"
    placement_timeout: str = "5m"

    def __post_init__(self) -> None:
        if not self.queues_file:
            next(map(_raise, _problems(self)), None)


class QueuesFile(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
    """The content of ``queues_file``, with args of the same names."""

    queues: list[QueueArgs] = []
    flavors: list[Flavor] = []
    queue_keys: list[str] = []
    namespace_queues: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Limit:
    """Amounts by resource that a queue is guaranteed and may use at most, on nodes of a flavor ("" for all)."""

    flavor: str
    guaranteed: Amounts
    limit: Amounts


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as planning uses it. ``lineage`` are the queue itself, its parent, and so on; jobs are in leaves only."""

    name: str
    parent: str
    weight: float
    priority: int
    limits: Sequence[Limit]
    lineage: tuple[str, ...]
    children: tuple[str, ...]

    @property
    def guaranteed(self) -> dict[str, int]:
        """What it is guaranteed, on all nodes together: the larger of that without flavor and the sum of flavors."""
        overall = {name: amount for each in self.limits if not each.flavor for name, amount in each.guaranteed.items()}
        by_flavor: dict[str, int] = {}
        for each in self.limits:
            if each.flavor:
                for name, amount in each.guaranteed.items():
                    by_flavor[name] = by_flavor.get(name, 0) + amount
        names = overall.keys() | by_flavor.keys()
        return {name: max(overall.get(name, 0), by_flavor.get(name, 0)) for name in names}

    def most(self, resource: str, flavors: Sequence[str]) -> float:
        """What it may use at most of a resource on all nodes, of these flavors; infinite without a limit."""
        overall = min(
            (e.limit[resource] for e in self.limits if not e.flavor and resource in e.limit), default=math.inf
        )
        by_flavor = {
            each.flavor: each.limit[resource] for each in self.limits if each.flavor and resource in each.limit
        }
        if not flavors or any(flavor not in by_flavor for flavor in flavors):
            return overall
        return min(overall, sum(by_flavor.values()))


def read_queues(args: JobQueuesArgs) -> dict[str, Queue]:
    """The queues by name, as the args have them in order."""
    parents = {each.name: each.parent for each in args.queues}
    children: dict[str, list[str]] = {}
    for each in args.queues:
        children.setdefault(each.parent, []).append(each.name)

    def lineage(name: str) -> Iterator[str]:
        while name:
            yield name
            name = parents[name]

    return {
        each.name: Queue(
            each.name,
            each.parent,
            each.weight,
            each.priority,
            [
                Limit(amount.flavor, amounts_of(amount.guaranteed, "guaranteed"), amounts_of(amount.limit, "limit"))
                for amount in each.amounts
            ],
            tuple(lineage(each.name)),
            tuple(children.get(each.name, ())),
        )
        for each in args.queues
    }


def seconds(text: str) -> float:
    """A duration such as ``1h30m`` in seconds. Raises ValueError."""
    return Duration.parse(text).seconds


def _raise(problem: str) -> None:
    raise ValueError(problem)


def _problems(args: JobQueuesArgs) -> Iterator[str]:
    durations: Mapping[str, Any] = {
        "fairShare.usageHalfLife": args.fair_share.usage_half_life,
        "preemption.minRunTime": args.preemption.min_run_time,
        "assumedRunTime": args.assumed_run_time,
        "maxWait": args.max_wait,
        "interval": args.interval,
        "settleTime": args.settle_time,
        "placementTimeout": args.placement_timeout,
    }
    positive = ("assumedRunTime", "interval", "placementTimeout")
    for path, text in durations.items():
        try:
            value = seconds(text)
        except ValueError as error:
            yield f"{path}: {error}"
            continue
        if value < 0 or (path in positive and not value):
            yield f"{path} is {text}, expected a {'positive' if path in positive else 'non-negative'} duration"
    if args.fair_share.usage_factor < 0:
        yield f"fairShare.usageFactor is {args.fair_share.usage_factor:g}, expected at least 0"
    if args.backfill.depth < 1:
        yield f"backfill.depth is {args.backfill.depth}, expected at least 1"
    if args.backfill.reservations < 1:
        yield f"backfill.reservations is {args.backfill.reservations}, expected at least 1"
    yield from _problems_of_queues(args)


def _problems_of_queues(args: JobQueuesArgs) -> Iterator[str]:
    if not args.queues:
        yield "queues: expected at least one"
    flavors = [each.name for each in args.flavors]
    for index, flavor in enumerate(args.flavors):
        if not flavor.name or flavors.index(flavor.name) != index:
            yield f'flavors[{index}].name is "{flavor.name}", expected a name of its own'
        if not flavor.node_labels:
            yield f"flavors[{index}].nodeLabels: expected at least one label"
    names = [each.name for each in args.queues]
    parents = {each.name: each.parent for each in args.queues}
    for index, queue in enumerate(args.queues):
        path = f"queues[{index}]"
        if not queue.name or names.index(queue.name) != index:
            yield f'{path}.name is "{queue.name}", expected a name of its own'
        if queue.parent and queue.parent not in parents:
            yield f'{path}.parent: there is no queue "{queue.parent}"'
        if not 0 < queue.weight < math.inf:
            yield f"{path}.weight is {queue.weight:g}, expected a positive number"
        above, parent = [queue.name], queue.parent
        while parent in parents:
            if parent in above:
                yield f"{path}.parent: is a cycle: {' -> '.join((*above, parent))}"
                break
            above.append(parent)
            parent = parents[parent]
        for number, amount in enumerate(queue.amounts):
            yield from _problems_of_amount(amount, f"{path}.amounts[{number}]", flavors)
    named = {f"namespaceQueues.{namespace}": name for namespace, name in args.namespace_queues.items()}
    for path, name in {**named, **({"defaultQueue": args.default_queue} if args.default_queue else {})}.items():
        if name not in parents:
            yield f'{path}: there is no queue "{name}"'
        elif name in parents.values():
            yield f'{path}: "{name}" is the parent of others, so it takes no jobs'


def _problems_of_amount(amount: Amount, path: str, flavors: Sequence[str]) -> Iterator[str]:
    if amount.flavor and amount.flavor not in flavors:
        yield f'{path}.flavor: there is no flavor "{amount.flavor}"'
    try:
        guaranteed = amounts_of(amount.guaranteed, f"{path}.guaranteed")
        limit = amounts_of(amount.limit, f"{path}.limit")
    except InvalidQuantity as error:
        yield str(error)
        return
    for name, least in guaranteed.items():
        if least > limit.get(name, least):
            yield f"{path}.guaranteed.{name}: is above limit.{name}"
