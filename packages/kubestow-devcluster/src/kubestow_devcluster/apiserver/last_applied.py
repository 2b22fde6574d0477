"""The annotation of client-side apply, where kubectl changes over to server-side apply.

`kubectl apply` keeps what it applied in an annotation, and owns the fields as another manager than with
``--server-side``. As in kube-apiserver, the fields that still have the value of the annotation are no conflicts for
kubectl, and an annotation that is there is kept up to date, so that kubectl can change back. Other managers are
not concerned.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from kubestow_devcluster.apiserver.kinds.object_fields import MAX_ANNOTATION_BYTES
from kubestow_devcluster.apiserver.managed_fields import Fieldset, applied_fieldset, compare, remove
from kubestow_devcluster.apiserver.schema.types import Object, Struct
from kubestow_devcluster.apiserver.typed_validation import type_problems

MANAGER = "kubectl"
"""The field manager of ``kubectl apply --server-side``."""
_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
#: The characters that Go's JSON encoder writes as escape sequences, for HTML and JavaScript.
_ESCAPED = re.compile("[<>&\u2028\u2029]")


def unchanged_fields(live: Object, struct: Struct, api_version: str) -> Fieldset:
    """The fields that client-side apply set, in this API version, and that have kept their value."""
    try:
        config: Any = msgspec.json.decode(_annotations(live).get(_ANNOTATION) or "null")
    except (msgspec.DecodeError, RecursionError):
        return {}
    if not isinstance(config, dict) or config.get("apiVersion") != api_version or type_problems(config, struct):
        return {}
    config = {**config, "metadata": config.get("metadata") or {}}
    fieldset = applied_fieldset(config, struct)
    comparison = compare(config, live, struct)
    for path in (*comparison.changed, *comparison.removed):
        remove(fieldset, path)
    return fieldset


def update_annotation(obj: Object, config: Object) -> None:
    """Set the annotation of an object that has one to an applied configuration; drop it if it is too long for one."""
    annotations = _annotations(obj)
    if not annotations.get(_ANNOTATION):
        return
    metadata = dict(config.get("metadata") or {})
    if applied := metadata.get("annotations"):
        metadata["annotations"] = {key: value for key, value in applied.items() if key != _ANNOTATION}
    text = json.dumps({**config, "metadata": metadata}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    text = _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"
    annotations = {**annotations, _ANNOTATION: text}
    if sum(len(f"{key}{value}".encode()) for key, value in annotations.items()) > MAX_ANNOTATION_BYTES:
        del annotations[_ANNOTATION]
    obj["metadata"] = {**obj["metadata"], "annotations": annotations}


def _annotations(obj: Object) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}
