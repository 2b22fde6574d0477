"""Bringing a cluster in from a file: nodes, pods and whatever else ``kubectl get -o json`` or ``-o yaml`` prints.

Objects are created anew: they get new uids and the owner references among them follow; references to owners that the
file does not have are dropped, lest the garbage collector take their dependents. What a file leaves out and its objects
need (namespaces, the priority classes of its pods) is made up for. Pods that have ended or are being deleted stay out;
pods that are bound run where they ran, volumes stay with their claims, and nodes that were lost stay silent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import yaml

from kubestow.devcluster.apiserver import statuses
from kubestow.devcluster.apiserver.registry.registry import Registry
from kubestow.devcluster.apiserver.resources import Kind, Object
from kubestow.devcluster.apiserver.schema import Mismatch
from kubestow.devcluster.apiserver.serialization.negotiation import YAMLLoader
from kubestow.devcluster.controllers.owners import uid_of
from kubestow.devcluster.kubelets import KUBELET, STOPPED
from kubestow.errors import InputError

__all__ = ["Loaded", "load"]

#: What a server decides about each object itself.
_DECIDED = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
#: Kinds that others need, in the order in which they are created; all others follow.
_FIRST = ("Namespace", "PriorityClass", "StorageClass", "Node")


class Loaded(NamedTuple):
    """How many objects of each kind were created, and how many were left out: ended pods, kinds that are not served."""

    created: dict[str, int]
    left_out: dict[str, int]


def load(registry: Registry, content: bytes, *, subject: str) -> Loaded:
    """Create the objects of a file. ``subject`` names it in errors. Raises InputError."""
    return _Loading(registry, subject).load(list(_objects(content, subject)))


def _objects(content: bytes, subject: str) -> Iterator[Object]:
    for document in _documents(content, subject):
        if document is None:
            continue
        if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
            raise InputError(subject, "expected Kubernetes objects, each with apiVersion and kind")
        if document["kind"].endswith("List"):
            items = document.get("items") or []
            # The items of a typed list do not say what they are.
            said = {"kind": document["kind"].removesuffix("List"), "apiVersion": document.get("apiVersion", "v1")}
            yield from ({**said, **item} for item in items if isinstance(item, dict))
        else:
            yield document


def _documents(content: bytes, subject: str) -> list[Any]:
    try:
        if content.lstrip().startswith(b"{"):
            return [msgspec.json.decode(content)]
        return list(yaml.load_all(content, Loader=YAMLLoader))
    except (msgspec.DecodeError, yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        problem = " ".join(str(error).split())
        raise InputError(subject, f"neither JSON nor YAML: {problem}") from None


class _Loading:
    def __init__(self, registry: Registry, subject: str) -> None:
        self._registry, self._subject = registry, subject
        self._kinds = {(kind.api_version, kind.name): kind for kind in registry.catalog}
        #: The uids of what is there by now, by those that the file knows them under.
        self._uids: dict[str, str] = {}
        self._loaded = Loaded({}, {})

    def load(self, objects: list[Object]) -> Loaded:
        wanted = [made for one in objects if (made := self._read(one)) is not None]
        rank = {name: number for number, name in enumerate(_FIRST)}
        wanted.sort(key=lambda pair: rank.get(pair[0].name, len(rank)))
        expected = {new["metadata"].get("uid") for _, new in wanted}
        while wanted:
            missing = expected - self._uids.keys()
            ready = [pair for pair in wanted if not any(uid in missing for uid in _owner_uids(pair[1]))]
            if not ready:
                raise InputError(self._subject, f"{_place(*wanted[0])} is its own owner, if by way of others")
            for kind, new in ready:
                self._bring_in(kind, new)
            brought = {id(new) for _, new in ready}
            wanted = [pair for pair in wanted if id(pair[1]) not in brought]
        return self._loaded

    def _read(self, new: Object) -> tuple[Kind, Object] | None:
        """An object as its kind has it; None for one that stays out."""
        kind = self._kinds.get((str(new.get("apiVersion")), new["kind"]))
        if kind is None:
            _count(self._loaded.left_out, new["kind"])
            return None
        try:
            made = kind.struct.read(new, [])
        except Mismatch as mismatch:
            raise InputError(self._subject, f"a {kind.name}: {mismatch}") from None
        if not isinstance(made.get("metadata"), dict) or not made["metadata"].get("name"):
            raise InputError(self._subject, f"a {kind.name} without metadata.name")
        if _is_over(kind, made):
            _count(self._loaded.left_out, kind.name)
            return None
        return kind, made

    def _bring_in(self, kind: Kind, new: Object) -> None:
        uid = new["metadata"].get("uid")
        metadata = {field: value for field, value in new["metadata"].items() if field not in _DECIDED}
        owners = metadata.pop("ownerReferences", None) or ()
        references = [{**one, "uid": self._uids[one["uid"]]} for one in owners if one.get("uid") in self._uids]
        if references:
            metadata["ownerReferences"] = references
        made = self._create(kind, {**new, "metadata": metadata})
        if uid:
            self._uids[uid] = made

    def _create(self, kind: Kind, new: Object) -> str:
        """Create an object; its uid. What a new cluster has anyway stays as it is."""
        new.pop("kind", None)
        new.pop("apiVersion", None)
        namespace = new["metadata"].get("namespace") or "default"
        stored = self._registry.store.collection(kind.storage).get(kind.key(namespace, new["metadata"]["name"]))
        if stored is None:
            try:
                if kind.namespaced:
                    self._need("namespaces", {"metadata": {"name": namespace}})
                if kind.name == "Pod":
                    self._prepare_pod(new["spec"])
                elif kind.name == "Node":
                    _keep_silent(new)
                elif kind.name == "PersistentVolume":
                    # By name the volume is still its claim's, which has another uid now.
                    (new["spec"].get("claimRef") or {}).pop("uid", None)
                stored = self._registry.create(kind, namespace, new)
            except statuses.Failure as refused:
                raise InputError(self._subject, f"{_place(kind, new)}: {refused.message}") from None
            _count(self._loaded.created, kind.name)
        return uid_of(stored)

    def _prepare_pod(self, spec: Object) -> None:
        """Let admission find the pod's priority again, in a class of the value it had."""
        value, policy = spec.pop("priority", 0), spec.pop("preemptionPolicy", "PreemptLowerPriority")
        if name := spec.get("priorityClassName"):
            class_ = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
            self._need("priorityclasses.scheduling.k8s.io", class_)

    def _need(self, resource: str, new: Object) -> None:
        kind = self._registry.catalog[resource]
        if self._registry.store.collection(kind.storage).get(new["metadata"]["name"]) is None:
            self._registry.create(kind, "", kind.struct.read(new, []))


def _is_over(kind: Kind, new: Object) -> bool:
    """Pods that have ended have nothing left to do, and what is being deleted would be gone by now."""
    ended = kind.name == "Pod" and (new.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return ended or "deletionTimestamp" in new["metadata"]


def _keep_silent(node: Object) -> None:
    """A node that nobody had heard of has no kubelet here either, unless the file says what its kubelet does."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    if any(one["type"] == "Ready" and one["status"] == "Unknown" for one in conditions):
        annotations = node["metadata"].get("annotations") or {}
        node["metadata"]["annotations"] = {KUBELET: STOPPED, **annotations}


def _owner_uids(new: Object) -> list[str]:
    return [one.get("uid", "") for one in new["metadata"].get("ownerReferences") or ()]


def _place(kind: Kind, new: Object) -> str:
    """An object, to name it in an error."""
    metadata = new["metadata"]
    return f"{kind.name} {kind.key(metadata.get('namespace', 'default'), metadata['name'])}"


def _count(counts: dict[str, int], kind: str) -> None:
    counts[kind] = counts.get(kind, 0) + 1
