"""The scheduler's reasons in plain words.

Messages are those of kube-scheduler (semantics 5.9): ``0/5 nodes are available: 3 Insufficient cpu, 2 node(s) had
untolerated taint(s).`` Reasons of plugins that are not known here stay as they are.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping

from kubestow.engine.explanation.changes import quantity_text
from kubestow.reports.model import counted

_MESSAGE = re.compile(r"^\d+/\d+ nodes are available:? ?(?P<reasons>.*?)\.(?: |$)", re.DOTALL)
_ENTRY = re.compile(r"(?:^|, )(\d+) (?=\S)")

#: What the pod needs, by a prefix of the reason; completes "on 3 nodes, …".
_PLAIN = {
    "Too many pods": "the maximum number of pods is reached",
    "node(s) had untolerated taint": "there is a taint that the pod does not tolerate",
    "node(s) were unschedulable": "scheduling is disabled (cordoned)",
    "node(s) didn't match Pod's node affinity/selector": "the pod's nodeSelector or nodeAffinity does not match",
    "node(s) didn't match scheduler-enforced node affinity": "the affinity that the profile adds does not match",
    "node(s) didn't match the requested node name": "the name is not the pod's spec.nodeName",
    "node(s) didn't match pod anti-affinity rules": "a pod runs there that this pod must not run beside",
    "node(s) didn't satisfy existing pods anti-affinity rules": "a pod runs there that refuses pods like this one",
    "node(s) didn't match pod affinity rules": "no pod runs there that this pod must run beside",
    "node(s) didn't match pod topology spread constraints (missing required label)": (
        "a label that the topology spread constraints name is missing"
    ),
    "node(s) didn't match pod topology spread constraints": "pods like this one would be spread too unevenly",
    "node(s) didn't have free ports for the requested pod ports": "a host port of the pod is taken",
    "node(s) didn't match Pod's required features": "the kubelet lacks a feature that the pod needs",
    "node(s) exceed max volume count": "no more volumes can be attached",
    "node(s) had no available volume zone": "a volume of the pod is in another zone",
    "node(s) had no available disk": "a disk of the pod is in use",
    "node(s) didn't match PersistentVolume's node affinity": "a volume of the pod is not reachable",
    "node(s) didn't find available persistent volumes to bind": "no volume is available for a claim of the pod",
    "node(s) did not have enough free storage": "too little storage is left for a new volume",
    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)": "a claim names a volume that is gone",
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode": (
        "another pod uses a volume that only one pod may use"
    ),
    "cannot allocate all claims": "the devices that the pod claims are not free",
}
_INSUFFICIENT = "Insufficient "
_MISSING_CLAIM = re.compile(r'persistentvolumeclaim "[^"]*" not found')


def reasons_in(message: str) -> Iterator[tuple[int, str]]:
    """The reasons of a message, each with its number of nodes; none for a message in another form."""
    found = _MESSAGE.match(message)
    if found is None:
        return
    text = found["reasons"]
    for entry, following in itertools.pairwise([*_ENTRY.finditer(text), None]):
        assert entry is not None
        yield int(entry[1]), text[entry.end() : following.start() if following else len(text)]


def plain_words(message: str) -> list[str]:
    """A message in plain words: one sentence per reason, the one for the most nodes first."""
    entries = sorted(reasons_in(message), key=lambda entry: -entry[0])
    return [f"{counted(count, 'node')}: {plain_reason(reason)}" for count, reason in entries]


def larger_than_any_node(requests: Mapping[str, int], largest: Callable[[str], int]) -> Iterator[str]:
    """The requests (millicores, bytes or counts) above the ``largest`` allocatable amount that a node has of each."""
    for resource, amount, most in _above_largest(requests, largest):
        has = quantity_text(resource, most) if most else "none"
        yield f"the pod requests {quantity_text(resource, amount)} {resource}, the largest node has {has}"


def scarce_resources(requests: Mapping[str, int], largest: Callable[[str], int]) -> Iterator[str]:
    """The same of pods that request different amounts: the resources of which no node has what they request."""
    for resource, _, most in _above_largest(requests, largest):
        has = f"more {resource} is requested than the largest node has ({quantity_text(resource, most)})"
        yield has if most else f"no node has any {resource}"


def _above_largest(requests: Mapping[str, int], largest: Callable[[str], int]) -> Iterator[tuple[str, int, int]]:
    for resource, amount in requests.items():
        if amount > (most := largest(resource)):
            yield resource, amount, most


def explain_gate(plugin: str) -> str:
    """Why a PreEnqueue plugin gates pods."""
    return {
        "SchedulingGates": "the pod has scheduling gates (spec.schedulingGates), which their controller has to remove",
        "GangScheduling": "the pod group does not exist, or fewer of its pods than it needs",
        "DefaultPreemption": "the pods that are evicted for this pod have not ended yet",
    }.get(plugin, f"the plugin {plugin} does not let the pod into the queue yet")


def plain_reason(reason: str, *, too_small: bool = False) -> str:
    """A reason in plain words; ``too_small`` says that resources would be insufficient without any pod on the node."""
    if reason.startswith(_INSUFFICIENT):
        name = reason.removeprefix(_INSUFFICIENT)
        resource = {"cpu": "CPU", "ephemeral-storage": "ephemeral storage"}.get(name, name)
        return "the node is too small for the pod" if too_small else f"too little {resource} is free"
    if _MISSING_CLAIM.match(reason):
        return "a PersistentVolumeClaim of the pod does not exist"
    for prefix, words in _PLAIN.items():
        if reason.startswith(prefix):
            in_braces = re.search(r"\{(.+?)\}", reason)  # such as the taint
            return f"{words} ({in_braces[1].strip()})" if in_braces else words
    return reason
