"""The rules that can be seen from outside of schedulers, and what breaks them.

Some of those of :mod:`kubestow_lab.fault_simulation.specification`, for a cluster of which only the API is known.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from kubestow_lab.oracle.feasibility import check_feasibility
from tests.fault_proxy.observation import BindingRequest, LeaseWrite, Observations

#: Seconds by which the time of an answer at the proxy may be after the moment at which it took effect.
_ANSWER_DELAY = 1.0
#: By how much the memory of a process may grow between the second quarter of its life and the last: a part, and bytes.
_GROWTH, _GROWTH_BYTES = 0.1, 16 << 20
#: Samples of memory that are too few to tell.
_MIN_SAMPLES = 40


def bindings_take_effect_once(bindings: Sequence[BindingRequest]) -> Iterator[str]:
    """The API server refuses a second binding; it must not be asked to carry out one that it has."""
    effective = Counter(binding.uid for binding in bindings if binding.status in (200, 201))
    for uid, count in effective.items():
        if count > 1:
            yield f"a pod is bound once: {count} bindings of {uid} took effect"


def only_the_leader_binds(bindings: Sequence[BindingRequest], lease_writes: Sequence[LeaseWrite]) -> Iterator[str]:
    """No binding arrives while another process has the Lease: a holder that cannot renew it stops before it expires."""
    times = [write.time for write in lease_writes]
    for binding in bindings:
        last = bisect_left(times, binding.arrived - _ANSWER_DELAY) - 1
        # Writes of about the same time may have been before it or after it.
        end = bisect_right(times, binding.arrived + _ANSWER_DELAY)
        writes = lease_writes[max(last, 0) : end]
        if last >= 0 and writes[0].holder and binding.client not in {write.client for write in writes}:
            yield (
                f"only the leader binds: {binding.client} binds {binding.pod} at {binding.arrived:.1f} s,"
                f" and {writes[0].client} has renewed the lease at {writes[0].time:.1f} s"
            )


def a_lease_expires_before_it_is_taken(lease_writes: Sequence[LeaseWrite], lease_duration: float) -> Iterator[str]:
    """Between the last renewal of one holder and the first of the next, the lease has expired or was released."""
    for before, after in pairwise(lease_writes):
        is_taken = before.holder and after.holder and before.holder != after.holder
        if is_taken and after.time - before.time < lease_duration - _ANSWER_DELAY:
            yield (
                f"at most one leader by their clocks: {after.holder} took the lease {after.time - before.time:.1f} s"
                f" after {before.holder} had renewed it"
            )


def missed_pods(observations: Observations) -> list[str]:
    """Pending pods that fit on a node."""
    pending = observations.pending
    verdicts = check_feasibility(pending, observations.nodes.values(), observations.bound)
    return [
        f"{pod['metadata']['name']} fits on {', '.join(verdict.nodes[:3])}"
        for pod, verdict in zip(pending, verdicts, strict=True)
        if verdict.is_feasible
    ]


def memory_is_flat(process: str, resident: Sequence[int]) -> Iterator[str]:
    """``resident`` are samples of the memory of a process over its life, in bytes."""
    if len(resident) < _MIN_SAMPLES:
        return
    quarter = len(resident) // 4
    early, late = median(resident[quarter : 2 * quarter]), median(resident[-quarter:])
    if late > early * (1 + _GROWTH) + _GROWTH_BYTES:
        yield f"memory is flat: {process} grew from {early / 2**20:.0f} MiB to {late / 2**20:.0f} MiB"
