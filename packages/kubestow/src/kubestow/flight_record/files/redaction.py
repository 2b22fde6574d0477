"""What a flight record keeps of an object: the fields that scheduling reads, and a few annotations.

Objects arrive decoded, so environment variables, commands, probes, the data of config maps and secrets and all other
fields that scheduling does not read are gone already. Of the annotations, those that scheduling reads are kept. All
others together become one digest, because a change of a node's annotations is an event of its own. The digest is keyed
with random bytes that are not stored, so it shows that something changed and not what.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from kubestow.api.resource import EXTENDED_RESOURCE_CLAIM
from kubestow.api.storage import BETA_STORAGE_CLASS, BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE

__all__ = ["DIGEST", "KEPT_ANNOTATIONS", "Redaction"]

DIGEST = "kubestow.flight-record/other-annotations"
"""The annotation with the digest of those that are left out."""

KEPT_ANNOTATIONS = frozenset(
    {
        BETA_STORAGE_CLASS,
        BIND_COMPLETED,
        BOUND_BY_CONTROLLER,
        EXTENDED_RESOURCE_CLAIM,
        SELECTED_NODE,
        "scheduling.k8s.io/group-name",
        "storage.alpha.kubernetes.io/migrated-plugins",
    }
)

_encode = msgspec.json.Encoder(order="deterministic").encode


class Redaction:
    """Redacts objects; equal annotations have equal digests within one record only."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def redacted(self, obj: Any) -> Any:
        """The object as it is recorded."""
        metadata: Any = getattr(obj, "metadata", None)
        annotations = getattr(metadata, "annotations", None)
        if not annotations:
            return obj
        return msgspec.structs.replace(
            obj, metadata=msgspec.structs.replace(metadata, annotations=self._annotations(annotations))
        )

    def _annotations(self, annotations: Mapping[str, str]) -> dict[str, str]:
        kept = {key: value for key, value in annotations.items() if key in KEPT_ANNOTATIONS}
        if len(kept) < len(annotations):
            others = {key: value for key, value in annotations.items() if key not in KEPT_ANNOTATIONS}
            kept[DIGEST] = blake2b(_encode(others), key=self._key, digest_size=8).hexdigest()
        return kept
