"""The model of a gang's placements in CP-SAT: a solution, a bound for every placement, or the proof that there is none.

Nodes that no constraint tells apart form a cell. A variable per kind and cell says how many pods of the kind are placed
there. What the nodes of a cell take is a number of nodes for each pattern, a combination of pods to which a node cannot
take another one; a cell of one node, and one with too many patterns, has the constraints of single nodes instead.

Constraints are in families (one per resource, pod slots, host ports, affinity, anti-affinity, spreading), and a model
can be built without some of them: that is how the families are found that together keep a gang from being placed.
Searches are limited by the solver's deterministic time, so results do not depend on the machine.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.columns import MISSING
from kubestow.engine.gangs.gang_devices import LocalDevices, WideClaim, WideDevices
from kubestow.engine.gangs.gang_problem import (
    AFFINITY,
    ANTI_AFFINITY,
    DEVICES,
    PORTS,
    SEGMENTS,
    SLOTS,
    SPREADING,
    Attraction,
    Confinement,
    Domains,
    Exclusion,
    GangProblem,
    SegmentRule,
    Spread,
)
from kubestow.engine.placement import solvers

Amounts = NDArray[np.int64]
Mask = NDArray[np.bool_]


#: Nodes with more patterns are not merged.
_MOST_PATTERNS = 500


class Answer(Enum):
    """What a search has found out."""

    PLACED = "placed"
    IMPOSSIBLE = "impossible"
    OUT_OF_TIME = "out of time"


@dataclass(frozen=True, slots=True)
class Solution:
    """An answer; ``placed`` (int64, kinds by nodes) if there is a placement, a ``bound`` for the objective of all, and
    the deterministic time spent.

    The bound is the most pods that a placement has, or the fewest that it moves.
    """

    answer: Answer
    placed: Amounts | None
    bound: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Quota:
    """What is to be placed: so many ``pods`` of some ``kinds`` (by number), or so many (``count``) of its ``parts``.

    Of a part that is not met nothing is placed.
    """

    kinds: frozenset[int] = frozenset()
    pods: int = 0
    parts: tuple[Quota, ...] = ()
    count: int = 0

    @property
    def all_kinds(self) -> frozenset[int]:
        """The kinds of all parts."""
        return self.kinds.union(*(part.all_kinds for part in self.parts))

    @property
    def needs_all_parts(self) -> bool:
        """Whether no part may be left out."""
        return self.count >= len(self.parts) and all(part.needs_all_parts for part in self.parts)

    def is_met(self, counts: Sequence[int]) -> bool:
        """Whether so many pods of each kind meet it."""
        if self.parts:
            return sum(part.is_met(counts) for part in self.parts) >= self.count
        return sum(counts[kind] for kind in self.kinds) >= self.pods


@dataclass(frozen=True, eq=False)
class _Cell:
    """Nodes that no constraint tells apart (intp), and how many pods of each kind one of them takes, by kind."""

    nodes: NDArray[np.intp]
    capacity: Mapping[int, int]
    patterns: NDArray[np.int64] | None = None

    @property
    def first(self) -> int:
        """A node of the cell, which stands for all."""
        return int(self.nodes[0])


class GangModel:
    """The model for placements on some nodes (``within``, bool per node), without the families in ``without``.

    ``merges_nodes`` into cells; otherwise each node is one, and solutions that differ in nodes alike are different.
    Raises InputError without OR-Tools.
    """

    def __init__(
        self,
        problem: GangProblem,
        within: Mask,
        quota: Quota,
        *,
        without: Collection[str] = (),
        merges_nodes: bool = True,
        seed: int = 0,
    ) -> None:
        self._problem, self._without, self._seed = problem, frozenset(without), seed
        self._cp = solvers.cp_model()
        self._model = solvers.new_cp_model()
        #: The combinations of pods on nodes, by what these are determined by.
        self._patterns_of: dict[Hashable, NDArray[np.int64] | None] = {}
        self._cells = self._merged(within) if merges_nodes else self._single(within)
        #: The variables by kind and cell, and those of the patterns of a cell.
        self._placed: list[dict[int, Any]] = [{} for _ in problem.kinds]
        self._patterns: dict[int, list[Any]] = {}
        #: The number of pods that leave their nodes, if that is to be small.
        self._moved: Any = None
        for number, cell in enumerate(self._cells):
            for kind, most in cell.capacity.items():
                self._placed[kind][number] = self._new_number(most * len(cell.nodes))
        self._presences: dict[tuple[int, str], dict[int, Any]] = {}
        #: Which kinds come first in a domain, by the number of the attraction and the domain.
        self._ranks: dict[tuple[int, int], Any] = {}
        self._conflicts = [] if PORTS in self._without else list(_port_conflicts(problem))
        for number, cell in enumerate(self._cells):
            if cell.patterns is None:
                self._constrain_node(number, cell)
            else:
                self._constrain_by_patterns(number, cell, cell.patterns)
        for kind, each in enumerate(problem.kinds):
            self._model.add(self._total([kind]) <= len(each.pods))
        if ANTI_AFFINITY not in self._without:
            for exclusion in problem.exclusions:
                self._exclude(exclusion)
        if AFFINITY not in self._without:
            self._attract(problem.attractions)
        if SPREADING not in self._without:
            for spread in problem.spreads:
                self._spread(spread)
        if SEGMENTS not in self._without:
            for rule in problem.segments:
                self._place_in_segments(rule)
        for confinement in problem.confinements:
            if confinement.family not in self._without:
                self._confine(confinement)
        if problem.devices is not None and problem.devices.wide is not None and DEVICES not in self._without:
            self._share_devices(problem.devices.wide)
        self._model.add_bool_or([self._met(quota)])

    # -- cells ---------------------------------------------------------------------------------------------------------

    def _single(self, within: Mask) -> list[_Cell]:
        """A cell for each node that takes a pod of the gang."""
        capacity = self._capacity(within)
        return [
            _Cell(np.array([column]), _positive(capacity[:, column])) for column in np.flatnonzero(capacity.any(axis=0))
        ]

    def _merged(self, within: Mask) -> list[_Cell]:
        """Cells of nodes with equal capacities and domains.

        The domains of a key that tells all nodes apart, such as the host name, do not matter for anti-affinity, which
        is then part of the patterns; those of a key for affinity and spreading do.
        """
        problem, capacity = self._problem, self._capacity(within)
        taking = np.flatnonzero(capacity.any(axis=0))
        columns = [row[taking] for row in capacity]
        for resource, free in problem.free.items():
            if resource not in self._without:
                most = sum(kind.requests.get(resource, 0) * len(kind.pods) for kind in problem.kinds)
                columns.append(np.minimum(free, most)[taking])
        if SLOTS not in self._without:
            columns.append(np.minimum(problem.slots, sum(len(kind.pods) for kind in problem.kinds))[taking])
        for exclusion in problem.exclusions:
            of_node = exclusion.domains.of_node[taking]
            columns.append(of_node != MISSING if exclusion.domains.are_single_nodes else of_node)
        columns += [each.domains.of_node[taking] for each in problem.attractions]
        for spread in problem.spreads:
            columns += [spread.domains.of_node[taking], spread.included[taking]]
        columns += [rule.domains.of_node[taking] for rule in problem.segments]
        columns += [
            confinement.class_of_node[taking]
            for confinement in problem.confinements
            if confinement.family not in self._without
        ]
        if problem.devices is not None and DEVICES not in self._without:
            columns += [of_node[taking] for of_node in problem.devices.classes_of_nodes]
        _, cell_of_node = np.unique(np.array(columns, np.int64), axis=1, return_inverse=True)
        cells: list[_Cell] = []
        for number in range(int(cell_of_node.max(initial=-1)) + 1):
            nodes = taking[cell_of_node == number]
            of_kind = _positive(capacity[:, nodes[0]])
            patterns = self._node_patterns(int(nodes[0]), of_kind) if len(nodes) > 1 else None
            if patterns is None:
                cells += [_Cell(nodes[[position]], of_kind) for position in range(len(nodes))]
            else:
                cells.append(_Cell(nodes, of_kind, patterns))
        return cells

    def _capacity(self, within: Mask) -> Amounts:
        """How many pods of each kind fit on each node by themselves, int64 (kinds, nodes)."""
        rows = [self._problem.capacity(number, self._without) for number in range(len(self._problem.kinds))]
        return np.where(within, np.array(rows, np.int64).reshape(len(rows), -1), 0)

    def _node_patterns(self, node: int, capacity: Mapping[int, int]) -> NDArray[np.int64] | None:
        """The combinations of pods to which a node cannot take another one, int64 (patterns, kinds of ``capacity``).

        None if there are too many.
        """
        problem, kinds = self._problem, list(capacity)
        free_here = tuple(int(free[node]) for name, free in problem.free.items() if name not in self._without)
        slots = 0 if SLOTS in self._without else int(problem.slots[node])
        local = self._local_devices(kinds)
        devices = -1 if local is None else int(local.class_of_node[node])
        key = tuple(capacity.items()), free_here, slots, devices, tuple(self._separate_on(node))
        if key not in self._patterns_of:
            self._patterns_of[key] = self._new_patterns(node, capacity)
        return self._patterns_of[key]

    def _new_patterns(self, node: int, capacity: Mapping[int, int]) -> NDArray[np.int64] | None:
        problem, kinds = self._problem, list(capacity)
        if math.prod(capacity[kind] + 1 for kind in kinds[:-1]) > _MOST_PATTERNS:
            return None
        requests = [
            ([problem.kinds[kind].requests.get(name, 0) for kind in kinds], int(free[node]))
            for name, free in problem.free.items()
            if name not in self._without
        ]
        if SLOTS not in self._without:
            requests.append(([1] * len(kinds), int(problem.slots[node])))
        found = np.array(list(product(*(range(capacity[kind] + 1) for kind in kinds[:-1]))), np.int64)
        last = np.full(len(found), capacity[kinds[-1]], np.int64)
        for amounts, free in requests:
            used = found @ np.array(amounts[:-1], np.int64)
            if amounts[-1]:
                last = np.minimum(last, (free - used) // amounts[-1])
            last[used > free] = -1
        found = np.column_stack([found, last])[last >= 0]
        for one, other in self._separate_on(node):
            if one in capacity and other in capacity:
                positions = kinds.index(one), kinds.index(other)
                if one == other:
                    found[:, positions[0]] = np.minimum(found[:, positions[0]], 1)
                else:
                    without = [found.copy(), found.copy()]
                    for copy, position in zip(without, positions, strict=True):
                        copy[:, position] = 0
                    found = np.concatenate(without)
        found = np.unique(found, axis=0)
        local = self._local_devices(kinds)
        if local is not None:
            most = np.tile(np.array([capacity[kind] for kind in kinds], np.int64), (len(local.on(node)), 1))
            for position, kind in enumerate(kinds):
                if kind in local.kinds:
                    most[:, position] = np.minimum(most[:, position], local.on(node)[:, local.kinds.index(kind)])
            if len(found) * len(most) > _MOST_PATTERNS**2:
                return None
            found = np.unique(np.minimum(found[:, None, :], most[None, :, :]).reshape(-1, len(kinds)), axis=0)
        if len(found) > _MOST_PATTERNS:
            return None
        exceeded_by = (found[None, :, :] >= found[:, None, :]).all(axis=2).sum(axis=1)
        largest: NDArray[np.int64] = found[exceeded_by == 1]  # by itself alone
        return largest

    def _local_devices(self, kinds: Collection[int]) -> LocalDevices | None:
        """The devices of single nodes, if several of some kinds compete; None if the capacities of kinds say it all."""
        devices = self._problem.devices
        if devices is None or devices.local is None or DEVICES in self._without:
            return None
        return devices.local if len(devices.local.competing.intersection(kinds)) > 1 else None

    def _separate_on(self, node: int) -> Iterator[tuple[int, int]]:
        """The pairs of kinds that cannot be on a node together, of a kind with itself if it has one pod at most."""
        if PORTS not in self._without:
            yield from _port_conflicts(self._problem)
        if ANTI_AFFINITY not in self._without:
            for exclusion in self._problem.exclusions:
                if exclusion.domains.of_node[node] != MISSING:
                    yield exclusion.kinds

    # -- searches ----------------------------------------------------------------------------------------------------

    def solve(self, limit: float) -> Solution:
        """A placement that satisfies all constraints, with as many pods as it finds within the limit."""
        if self._moved is None:
            self._model.maximize(self._total(range(len(self._placed))))
        else:
            self._model.minimize(self._moved)
        solver = self._cp.CpSolver()
        solver.parameters.max_deterministic_time = max(limit, 0.01)
        solver.parameters.random_seed = self._seed
        solver.parameters.num_workers = 1
        status = solver.solve(self._model)
        seconds = float(solver.response_proto.deterministic_time)
        if status == self._cp.INFEASIBLE:
            return Solution(Answer.IMPOSSIBLE, None, 0, seconds)
        if status not in (self._cp.OPTIMAL, self._cp.FEASIBLE):
            pods = sum(len(kind.pods) for kind in self._problem.kinds) if self._moved is None else 0
            return Solution(Answer.OUT_OF_TIME, None, pods, seconds)
        placed = np.zeros((len(self._placed), len(self._problem.node_names)), np.int64)
        for number, cell in enumerate(self._cells):
            self._put(placed, cell, number, solver)
        bound = solver.best_objective_bound
        rounded = math.floor(bound + 1e-6) if self._moved is None else math.ceil(bound - 1e-6)
        return Solution(Answer.PLACED, placed, rounded, seconds)

    def _put(self, placed: Amounts, cell: _Cell, number: int, solver: Any) -> None:
        """Put the pods of a cell on its nodes, as its patterns say."""
        counts = {kind: solver.value(self._placed[kind][number]) for kind in cell.capacity}
        if cell.patterns is None:
            for kind, count in counts.items():
                placed[kind, cell.first] = count
            return
        used = (
            pattern
            for pattern, variable in zip(cell.patterns, self._patterns[number], strict=True)
            for _ in range(solver.value(variable))
        )
        for node, pattern in zip(cell.nodes.tolist(), used, strict=False):
            for kind, most in zip(counts, pattern.tolist(), strict=True):
                placed[kind, node] = min(most, counts[kind])
                counts[kind] -= placed[kind, node]

    def keep_in_place(self, existing: Amounts, most: int) -> None:
        """Prefer solutions that move few pods, ``most`` of them at most, over those that place many.

        ``existing`` (int64, kinds by nodes) are pods that are on nodes now. The model must not merge nodes.
        """
        moved = []
        for kind, row in enumerate(existing):
            cells = {self._cells[number].first: variable for number, variable in self._placed[kind].items()}
            for node in np.flatnonzero(row).tolist():
                there = int(row[node])
                leaving = self._new_number(there)
                self._model.add(leaving >= there - cells.get(node, 0))
                moved.append(leaving)
        self._model.add(self._sum(moved) <= most)
        self._moved = self._sum(moved)

    def empty_domains(
        self, domains: Sequence[NDArray[np.intp]], count: int, leaving: Collection[int], confined: Collection[int]
    ) -> None:
        """Have ``count`` domains without pods of the kinds ``leaving``, and all pods of the kinds ``confined`` in them.

        ``domains`` are the nodes (intp) of each that can be emptied. The model must not merge nodes.
        """
        emptied = [self._new_literal() for _ in domains]
        self._model.add(self._sum(emptied) == count)
        of_node = {int(node): literal for nodes, literal in zip(domains, emptied, strict=True) for node in nodes}
        for kind, variables in enumerate(self._placed):
            for number, variable in variables.items():
                is_emptied = of_node.get(self._cells[number].first)
                if is_emptied is None:
                    if kind in confined:
                        self._model.add(variable == 0)
                elif kind in confined:
                    self._model.add(variable == 0).only_enforce_if(is_emptied.negated())
                elif kind in leaving:
                    self._model.add(variable == 0).only_enforce_if(is_emptied)

    def forbid(self, placed: Amounts) -> None:
        """Exclude one solution, of a model that does not merge nodes."""
        differs = []
        for kind, variables in enumerate(self._placed):
            for number, variable in variables.items():
                value = int(placed[kind, self._cells[number].first])
                for bound in (variable <= value - 1, variable >= value + 1):
                    literal = self._new_literal()
                    self._model.add(bound).only_enforce_if(literal)
                    differs.append(literal)
        self._model.add_bool_or(differs)

    # -- constraints ---------------------------------------------------------------------------------------------------

    def _constrain_node(self, number: int, cell: _Cell) -> None:
        """What a node takes by its amounts, slots and ports."""
        problem, kinds = self._problem, self._problem.kinds
        here = {kind: self._placed[kind][number] for kind in cell.capacity}
        if SLOTS not in self._without:
            self._model.add(self._sum(here.values()) <= int(problem.slots[cell.first]))
        for resource, free in problem.free.items():
            amounts = {kind: kinds[kind].requests.get(resource, 0) for kind in here}
            using = [kind for kind, amount in amounts.items() if amount]
            if using and resource not in self._without:
                unit = int(np.gcd.reduce([amounts[kind] for kind in using]))
                weights = [amounts[kind] // unit for kind in using]
                used = self._cp.LinearExpr.weighted_sum([here[kind] for kind in using], weights)
                self._model.add(used <= int(free[cell.first]) // unit)
        for one, other in self._conflicts:
            if one in here and other in here:
                self._model.add(here[one] + here[other] <= 1)
        local = self._local_devices(cell.capacity)
        if local is not None:
            patterns = local.on(cell.first)
            chosen = [self._new_literal() for _ in patterns]
            self._model.add_at_most_one(chosen)
            for kind, most in zip(local.kinds, patterns.T.tolist(), strict=True):
                if kind in here:
                    self._model.add(here[kind] <= self._cp.LinearExpr.weighted_sum(chosen, most))

    def _constrain_by_patterns(self, number: int, cell: _Cell, patterns: NDArray[np.int64]) -> None:
        variables = self._patterns[number] = [self._new_number(len(cell.nodes)) for _ in patterns]
        self._model.add(self._sum(variables) <= len(cell.nodes))
        for kind, most in zip(cell.capacity, patterns.T.tolist(), strict=True):
            room = self._cp.LinearExpr.weighted_sum(variables, most)
            self._model.add(self._placed[kind][number] <= room)

    def _exclude(self, exclusion: Exclusion) -> None:
        """Keep pods of two kinds apart; on single nodes the patterns of merged cells do so already."""
        (one, other), domains = exclusion.kinds, exclusion.domains
        if one == other:
            for variables in self._by_domain(one, domains, merged=not domains.are_single_nodes).values():
                self._model.add(self._sum(variables) <= 1)
            return
        here, there = (self._presence(kind, domains, merged=not domains.are_single_nodes) for kind in (one, other))
        for domain in here.keys() & there.keys():
            self._model.add_bool_or([here[domain].negated(), there[domain].negated()])

    def _attract(self, attractions: Sequence[Attraction]) -> None:
        """In each domain the first pod of a kind comes after one that it needs, so kinds do not just need each other.

        Of two kinds that count for each other only one has a pod that comes before all of them.
        """
        firsts: list[list[Any]] = []
        for number, each in enumerate(attractions):
            supporting = {kind: self._by_domain(kind, each.domains) for kind in each.supporters}
            in_need = {
                other.kind: position
                for position, other in enumerate(attractions)
                if other.domains.key == each.domains.key
            }
            first: list[Any] = []
            for domain, literal in self._presence(each.kind, each.domains).items():
                if each.existing[domain]:
                    continue
                support: list[Any] = []
                for kind, by_domain in supporting.items():
                    position = in_need.get(kind)
                    if position is None or attractions[position].existing[domain]:
                        support += by_domain.get(domain, ())
                    elif domain in by_domain:
                        support.append(self._is_before(position, number, attractions, domain))
                if each.may_be_first:
                    support.append(self._new_literal())
                    first.append(support[-1])
                self._model.add(self._sum(support) >= 1).only_enforce_if(literal)
            self._model.add(self._sum(first) <= 1)
            firsts.append(first)
        for one, other in combinations(range(len(attractions)), 2):
            kinds = attractions[one].kind, attractions[other].kind
            if kinds[0] in attractions[other].supporters and kinds[1] in attractions[one].supporters:
                self._model.add(self._sum([*firsts[one], *firsts[other]]) <= 1)

    def _is_before(self, one: int, other: int, attractions: Sequence[Attraction], domain: int) -> Any:
        """A literal that has a domain contain a pod of the kind of one attraction, placed before those of another."""
        kind, domains = attractions[one].kind, attractions[one].domains
        literal = self._new_literal()
        self._model.add_implication(literal, self._presence(kind, domains)[domain])
        for number in (one, other):
            if (number, domain) not in self._ranks:
                self._ranks[number, domain] = self._new_number(len(attractions))
        self._model.add(self._ranks[one, domain] < self._ranks[other, domain]).only_enforce_if(literal)
        return literal

    def _spread(self, spread: Spread) -> None:
        """Limit the pods that a domain has when the last one of the kinds is placed there, after all others of them.

        The least is that of the end, which is no less than it was then.
        """
        domains, existing = spread.domains, spread.existing
        eligible = [domain for domain in np.flatnonzero(spread.eligible).tolist() if domain != MISSING]
        least: Any = 0
        if len(eligible) >= spread.min_domains:
            counted = sum(len(self._problem.kinds[kind].pods) for kind in spread.counted)
            least = self._new_number(int(existing[eligible].min()) + counted)
            added = [self._by_domain(kind, domains, included=spread.included) for kind in spread.counted]
            for domain in eligible:
                variables = [variable for by_domain in added for variable in by_domain.get(domain, ())]
                self._model.add(least <= int(existing[domain]) + self._sum(variables))
        own: dict[int, list[Any]] = {}
        for kind in spread.kinds & spread.counted:
            for domain, variables in self._by_domain(kind, domains, included=spread.included).items():
                own.setdefault(domain, []).extend(variables)
        for kind in spread.kinds:
            for domain, literal in self._presence(kind, domains).items():
                placed = self._sum(own[domain]) if domain in own else int(spread.counts_itself)
                self._model.add(int(existing[domain]) + placed - least <= spread.max_skew).only_enforce_if(literal)

    def _place_in_segments(self, rule: SegmentRule) -> None:
        """Make the pods of each domain a multiple of the size of segments."""
        if rule.is_outside:
            self._model.add_bool_or([])
        by_kind = [self._by_domain(kind, rule.domains) for kind in rule.kinds]
        most = sum(len(self._problem.kinds[kind].pods) for kind in rule.kinds)
        for domain, existing in enumerate(rule.existing.tolist()):
            variables = [variable for by_domain in by_kind for variable in by_domain.get(domain, ())]
            if variables or existing:
                whole = self._new_number((most + existing) // rule.size)
                self._model.add(self._sum(variables) + existing == rule.size * whole)

    def _confine(self, confinement: Confinement) -> None:
        """Place the pods of a group in one of its choices."""
        chosen = [self._new_literal() for _ in confinement.choices]
        self._model.add_at_most_one(chosen)
        for kind in confinement.kinds:
            most = len(self._problem.kinds[kind].pods)
            for number, variable in self._placed[kind].items():
                containing = np.flatnonzero(confinement.choices[:, self._cells[number].first]).tolist()
                self._model.add(variable <= most * self._sum([chosen[choice] for choice in containing]))

    def _share_devices(self, wide: WideDevices) -> None:
        """Give the pods of wide claims devices, by the group; those that have a claim together get them once."""
        used: list[list[Any]] = [[] for _ in wide.groups]
        capacity: list[dict[str, list[tuple[Any, int]]]] = [{} for _ in wide.groups]
        by_reach = [self._by_reach(kind, wide) for kind in range(len(self._placed))]
        for claim in wide.claims:
            pods = {
                reach: [variable for kind in claim.kinds for variable in by_reach[kind].get(reach, ())]
                for reach in {reach for kind in claim.kinds for reach in by_reach[kind]}
            }
            #: The devices of a claim that is shared, by its request and their group.
            held: dict[int, dict[int, list[Any]]] = {}
            for reach, (most, number) in self._holders(claim, pods).items():
                ways = [self._new_number(most) for _ in claim.modes.get(reach, ())]
                self._model.add(self._sum(ways) == number)
                for way, uses in zip(ways, claim.modes.get(reach, ()), strict=True):
                    for use in uses:
                        taken = {group: self._new_number(most * use.count) for group in use.groups}
                        self._model.add(self._sum(taken.values()) == use.count * way)
                        for group, variable in taken.items():
                            used[group].append(variable)
                            held.setdefault(use.request, {}).setdefault(group, []).append(variable)
                            for name, amount in use.groups[group].items():
                                capacity[group].setdefault(name, []).append((variable, amount))
            if claim.is_shared:
                self._keep_together(pods, held.values(), wide)
        counters: dict[Hashable, list[tuple[Any, int]]] = {}
        for number, devices in enumerate(wide.groups):
            if devices.capacity is None:
                self._model.add(self._sum(used[number]) <= devices.count)
            for name, total in (devices.capacity or {}).items():
                self._limit(capacity[number].get(name, []), total)
            for counter, amount in devices.counters.items():
                counters.setdefault(counter, []).extend((variable, amount) for variable in used[number])
        for counter, terms in counters.items():
            self._limit(terms, wide.counters[counter])

    def _by_reach(self, kind: int, wide: WideDevices) -> dict[int, list[Any]]:
        """The variables of a kind by the reach of their nodes."""
        found: dict[int, list[Any]] = {}
        for number, variable in self._placed[kind].items():
            found.setdefault(int(wide.reach_of_node[self._cells[number].first]), []).append(variable)
        return found

    def _holders(self, claim: WideClaim, pods: Mapping[int, list[Any]]) -> dict[int, tuple[int, Any]]:
        """How many claims are allocated for nodes of each reach, at most and in the solution: one for each pod.

        A claim that pods share is allocated for one of the reaches, if any pod is placed.
        """
        most = sum(len(self._problem.kinds[kind].pods) for kind in claim.kinds)
        if not claim.is_shared:
            return {reach: (most, self._sum(variables)) for reach, variables in pods.items()}
        chosen = {reach: self._new_literal() for reach in pods}
        self._model.add_at_most_one(chosen.values())
        for variables in pods.values():
            self._model.add(self._sum(variables) <= most * self._sum(chosen.values()))
        return {reach: (1, literal) for reach, literal in chosen.items()}

    def _keep_together(
        self, pods: Mapping[int, list[Any]], held: Iterable[Mapping[int, list[Any]]], wide: WideDevices
    ) -> None:
        """Place the pods that share a claim on nodes that can access all of its devices."""
        present = {reach: self._new_literal() for reach in pods}
        for reach, variables in pods.items():
            self._model.add(self._sum(variables) == 0).only_enforce_if(present[reach].negated())
        for of_request in held:
            in_all = self._new_number(10**6)
            self._model.add(in_all == self._sum([each for taken in of_request.values() for each in taken]))
            by_reach: dict[int, list[Any]] = {}
            for group, taken in of_request.items():
                for reach in wide.groups[group].reaches:
                    by_reach.setdefault(reach, []).extend(taken)
            for reach, literal in present.items():
                self._model.add(self._sum(by_reach.get(reach, ())) == in_all).only_enforce_if(literal)

    def _limit(self, terms: Sequence[tuple[Any, int]], most: int) -> None:
        """Limit a sum of variables with amounts, which may be larger than the solver's numbers."""
        amounts = [amount for _, amount in terms if amount > 0]
        if not amounts:
            return
        unit = math.gcd(*amounts)
        weights = [amount // unit for _, amount in terms]
        self._model.add(self._cp.LinearExpr.weighted_sum([each for each, _ in terms], weights) <= max(0, most) // unit)

    def _met(self, quota: Quota) -> Any:
        """A literal that implies that a quota is met; without it nothing of the quota is placed."""
        literal = self._new_literal()
        if quota.parts:
            self._model.add(self._sum([self._met(part) for part in quota.parts]) >= quota.count).only_enforce_if(
                literal
            )
        else:
            self._model.add(self._total(quota.kinds) >= quota.pods).only_enforce_if(literal)
        self._model.add(self._total(quota.all_kinds) == 0).only_enforce_if(literal.negated())
        return literal

    def _presence(self, kind: int, domains: Domains, *, merged: bool = True) -> dict[int, Any]:
        """A literal per domain of a topology key: whether it has a pod of a kind."""
        known = self._presences.get((kind, domains.key))
        if known is None:
            known = self._presences[kind, domains.key] = {}
            for domain, variables in self._by_domain(kind, domains, merged=merged).items():
                literal = known[domain] = self._new_literal()
                for variable in variables:
                    self._model.add(variable == 0).only_enforce_if(literal.negated())
                self._model.add(self._sum(variables) >= 1).only_enforce_if(literal)
        return known

    def _by_domain(
        self, kind: int, domains: Domains, *, included: Mask | None = None, merged: bool = True
    ) -> dict[int, list[Any]]:
        """The variables of a kind by domain, without nodes that have none; maybe without those of merged cells."""
        found: dict[int, list[Any]] = {}
        for number, variable in self._placed[kind].items():
            cell = self._cells[number]
            domain = int(domains.of_node[cell.first])
            if domain != MISSING and (included is None or included[cell.first]) and (merged or cell.patterns is None):
                found.setdefault(domain, []).append(variable)
        return found

    def _new_literal(self) -> Any:
        return self._model.new_bool_var("")

    def _new_number(self, most: int) -> Any:
        return self._model.new_int_var(0, most, "")

    def _total(self, kinds: Iterable[int]) -> Any:
        return self._sum([variable for kind in kinds for variable in self._placed[kind].values()])

    def _sum(self, variables: Iterable[Any]) -> Any:
        return self._cp.LinearExpr.sum(list(variables))


def _positive(capacity: Amounts) -> dict[int, int]:
    """The kinds with a capacity above 0."""
    return {kind: most for kind, most in enumerate(capacity.tolist()) if most > 0}


def _port_conflicts(problem: GangProblem) -> Iterator[tuple[int, int]]:
    """The pairs of kinds whose host ports exclude each other on a node."""
    for one, other in combinations(range(len(problem.kinds)), 2):
        pairs = product(problem.kinds[one].host_ports, problem.kinds[other].host_ports)
        if any(port.conflicts_with(taken) for port, taken in pairs):
            yield one, other
