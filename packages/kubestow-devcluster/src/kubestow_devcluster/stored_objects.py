"""Reading stored objects without decoding them whole: what kubelets and controllers check for every event.

A stored pod carries the values of its selectable fields; other facts are read from the encoded bytes.
"""

from __future__ import annotations

import msgspec

from kubestow.rules.pods import is_terminal
from kubestow_devcluster.apiserver.storage.store import StoredObject

__all__ = ["has_deadline", "is_pod_finished", "is_terminating", "node_name_of", "phase_of", "uid_of"]

# The positions of spec.nodeName and status.phase among the selectable fields of pods.
_NODE_NAME, _PHASE = 0, 5


class _Metadata(msgspec.Struct, frozen=True):
    uid: str = ""


class _Identified(msgspec.Struct, frozen=True):
    metadata: _Metadata


def uid_of(stored: StoredObject) -> str:
    return msgspec.json.decode(stored.data, type=_Identified).metadata.uid


def is_terminating(stored: StoredObject) -> bool:
    """Whether the object has a deletionTimestamp."""
    return b'"deletionTimestamp":' in stored.data


def has_deadline(pod: StoredObject) -> bool:
    """Whether the pod has ``activeDeadlineSeconds``."""
    return b'"activeDeadlineSeconds":' in pod.data


def node_name_of(pod: StoredObject) -> str:
    """The node a pod is bound to; empty if it is not bound."""
    return pod.fields[_NODE_NAME]


def phase_of(pod: StoredObject) -> str:
    return pod.fields[_PHASE]


def is_pod_finished(pod: StoredObject) -> bool:
    """Whether the pod has succeeded or failed."""
    return is_terminal(phase_of(pod))
