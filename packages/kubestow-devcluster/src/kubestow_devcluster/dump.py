"""Loading a cluster from a dump: the nodes, pods and other objects that ``kubectl get -o json`` or ``-o yaml`` prints.

Objects are created with new uids, and owner references between them are mapped to the new uids. References to owners
that are not in the dump are dropped: the garbage collector would delete the dependents. Namespaces, priority classes,
runtime classes and service accounts that the objects need and the dump does not contain are created, and so are the
ControllerRevisions of the pods of DaemonSets and StatefulSets, which would be replaced without them. Finished pods and
objects with a deletionTimestamp are skipped. Custom resources are created with their status if their definitions are in
the dump. Bound pods stay on their nodes, volumes stay bound to their claims, and unreachable nodes stay unreachable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from kubestow.api.conversion import conversion_of
from kubestow.api.formats.yaml_documents import yaml_documents
from kubestow.errors import InputError
from kubestow.files import as_utf8
from kubestow.rules.pods import is_terminal
from kubestow.rules.workloads import REVISION_LABEL, revision_data
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.kinds.object_fields import get_condition
from kubestow_devcluster.apiserver.registry.registry import Registry
from kubestow_devcluster.apiserver.schema.types import Object, UnmarshalTypeError
from kubestow_devcluster.behaviour.pod_behaviour import KUBELET, STOPPED
from kubestow_devcluster.component_base.stored_objects import new_controller_ref, uid_of

#: Metadata that the API server assigns to each object.
_SERVER_ASSIGNED = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
_DEFINITION = "CustomResourceDefinition"
#: Kinds that other objects depend on, in creation order; all other kinds follow.
_CREATED_FIRST = ("Namespace", "PriorityClass", "RuntimeClass", "StorageClass", "Node", "ServiceAccount")
#: Kinds that restrict the creation of others.
_CREATED_LAST = ("LimitRange", "ResourceQuota")
#: The label of a ControllerRevision with the hash of its template, by the kind of its owner.
_HASH_LABELS = {"DaemonSet": REVISION_LABEL, "StatefulSet": "controller.kubernetes.io/hash"}


class LoadResult(NamedTuple):
    """How many objects of each kind were created, and how many were skipped: finished, deleted, or not served here.

    ``left_out`` are the messages about custom resources and their definitions that are invalid here.
    """

    created: dict[str, int]
    skipped: dict[str, int]
    left_out: tuple[str, ...] = ()


def load(registry: Registry, content: bytes, *, subject: str) -> LoadResult:
    """Create the objects of a dump, which may be compressed. ``subject`` names it in errors. Raises InputError."""
    return _Loader(registry, subject).load(list(_objects(as_utf8(content, subject), subject)))


def _objects(content: bytes, subject: str) -> Iterator[Object]:
    """The objects of all documents, with the items of lists in place of the lists."""
    documents = [document for document in _documents(content, subject) if document is not None]
    if not documents:
        raise InputError(subject, "is empty, expected Kubernetes objects")
    no_objects = InputError(subject, "expected Kubernetes objects, each with apiVersion and kind")
    for document in documents:
        if not _is_typed(document):
            raise no_objects
        if document["kind"].endswith("List"):
            items = document.get("items") or []
            if not isinstance(items, list):
                raise InputError(subject, f"{document['kind']}.items: expected a list")
            # The items of a typed list such as NodeList have no kind and apiVersion of their own.
            type_meta = {"kind": document["kind"].removesuffix("List"), "apiVersion": document.get("apiVersion", "v1")}
            for item in items:
                if not isinstance(item, dict):
                    continue
                typed = {**type_meta, **item}
                if not _is_typed(typed):
                    raise no_objects
                yield typed
        else:
            yield document


def _is_typed(document: Any) -> bool:
    return isinstance(document, dict) and isinstance(document.get("kind"), str)


def _documents(content: bytes, subject: str) -> list[Any]:
    try:
        if content.lstrip().startswith(b"{"):
            return [msgspec.json.decode(content)]
        return [document.data for document in yaml_documents(content, subject)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = " ".join(str(error).split())
        raise InputError(subject, f"neither JSON nor YAML: {problem}") from None


class _Loader:
    def __init__(self, registry: Registry, subject: str) -> None:
        self._registry, self._subject = registry, subject
        self._kinds = self._creatable()
        #: The new uid of each created object by its uid in the dump.
        self._uids: dict[str, str] = {}
        self._result = LoadResult({}, {})
        self._left_out: list[str] = []

    def _creatable(self) -> dict[tuple[str, str], Kind]:
        kinds = (*self._registry.scheme, *self._registry.scheme.hub_kinds)
        return {(kind.api_version, kind.name): kind for kind in kinds if "create" in kind.rest.verbs}

    def load(self, objects: list[Object]) -> LoadResult:
        definitions = [document for document in objects if document["kind"] == _DEFINITION]
        self._create_all([pair for document in definitions if (pair := self._decode(document)) is not None])
        self._kinds = self._creatable()  # those of the definitions, too
        others = (document for document in objects if document["kind"] != _DEFINITION)
        decoded = [pair for document in others if (pair := self._decode(document)) is not None]
        self._create_all([pair for pair in decoded if pair[0].name not in _CREATED_LAST])
        self._create_all([pair for pair in decoded if pair[0].name in _CREATED_LAST])
        self._keep_revisions(decoded)
        return self._result._replace(left_out=tuple(self._left_out))

    def _create_all(self, remaining: list[tuple[Kind, Object]]) -> None:
        """Create objects, each after its owners. Raises InputError."""
        rank = {name: position for position, name in enumerate(_CREATED_FIRST)}
        remaining.sort(key=lambda pair: rank.get(pair[0].name, len(rank)))
        dumped_uids = {new["metadata"].get("uid") for _, new in remaining}
        while remaining:
            # Owners before their dependents: a dependent needs the owner's new uid.
            pending = dumped_uids - self._uids.keys()
            ready = [pair for pair in remaining if not any(uid in pending for uid in _owner_uids(pair[1]))]
            if not ready:
                raise InputError(self._subject, f"{_describe(*remaining[0])} has a cyclic owner reference")
            for kind, new in ready:
                uid = new["metadata"].get("uid")
                metadata = {field: value for field, value in new["metadata"].items() if field not in _SERVER_ASSIGNED}
                owners = metadata.pop("ownerReferences", None) or ()
                references = [
                    {**owner, "uid": new_owner}
                    for owner in owners
                    if (new_owner := self._uids.get(owner.get("uid", "")))
                ]
                if references:
                    metadata["ownerReferences"] = references
                new_uid = self._create(kind, {**new, "metadata": metadata})
                if uid:
                    self._uids[uid] = new_uid
            created = {id(new) for _, new in ready}
            remaining = [pair for pair in remaining if id(pair[1]) not in created]

    def _keep_revisions(self, decoded: list[tuple[Kind, Object]]) -> None:
        """Have the pods of DaemonSets and StatefulSets be of the revision that they were of.

        The revision of the current template gets the template as it is stored here, where defaults may differ, and is
        created if the dump lacks it.
        """
        dependents: dict[str, list[tuple[Kind, Object]]] = {}
        for kind, new in decoded:
            for uid in _owner_uids(new):
                dependents.setdefault(uid, []).append((kind, new))
        for kind, new in decoded:
            if kind.name not in _HASH_LABELS or not (uid := new["metadata"].get("uid")):
                continue
            owned = dependents.get(uid, [])
            revisions = [each for of_kind, each in owned if of_kind.name == "ControllerRevision"]
            name = _current_revision(kind, new, revisions, [each for of_kind, each in owned if of_kind.name == "Pod"])
            if name:
                self._put_revision(kind, new, name, {each["metadata"]["name"]: each for each in revisions})

    def _put_revision(self, kind: Kind, owner: Object, name: str, dumped: dict[str, Object]) -> None:
        registry = self._registry
        of_revisions = registry.scheme["controllerrevisions.apps"]
        namespace, owner_name = owner["metadata"].get("namespace") or "default", owner["metadata"]["name"]
        stored = kind.decode(registry.get(kind, namespace, owner_name))
        data = revision_data(stored)
        if name in dumped:
            registry.update(of_revisions, namespace, name, lambda old: {**old, "data": data})
            return
        labels = dict(stored["spec"]["template"].get("metadata", {}).get("labels") or {})
        metadata = {
            "name": name,
            "namespace": namespace,
            "labels": {**labels, _HASH_LABELS[kind.name]: name.removeprefix(f"{owner_name}-")},
            "ownerReferences": [new_controller_ref(kind, stored)],
        }
        number = max([each.get("revision", 0) for each in dumped.values()], default=0) + 1
        self._create(of_revisions, {"metadata": metadata, "data": data, "revision": number})

    def _decode(self, new: Object) -> tuple[Kind, Object] | None:
        """The object read by its kind's schema; None if it is skipped. Raises InputError."""
        api_version = str(new.get("apiVersion"))
        kind = self._kinds.get((api_version, new["kind"]))
        if kind is None and (group := conversion_of(api_version, new["kind"])) is not None:
            new = group.to_hub(api_version.rpartition("/")[2], new)
            kind = self._kinds.get((new["apiVersion"], new["kind"]))
        if kind is None:
            _count(self._result.skipped, new["kind"])
            return None
        try:
            decoded = kind.struct.read(new, [])
        except UnmarshalTypeError as mismatch:
            raise InputError(self._subject, f"a {kind.name}: {mismatch}") from None
        if not isinstance(decoded.get("metadata"), dict) or not decoded["metadata"].get("name"):
            raise InputError(self._subject, f"a {kind.name} without metadata.name")
        is_finished = kind.name == "Pod" and is_terminal((decoded.get("status") or {}).get("phase"))
        if is_finished or "deletionTimestamp" in decoded["metadata"]:
            _count(self._result.skipped, kind.name)
            return None
        return kind, decoded

    def _create(self, kind: Kind, new: Object) -> str:
        """Create an object unless it exists, as the system objects do. Raises InputError.

        Returns its uid, "" for a custom resource or a definition that is left out.
        """
        is_custom = self._registry.scheme.is_custom(kind)
        new.pop("kind", None)
        new.pop("apiVersion", None)
        namespace = new["metadata"].get("namespace") or "default"
        stored = self._registry.store.collection(kind.storage).get(kind.key(namespace, new["metadata"]["name"]))
        if stored is None:
            try:
                if kind.namespaced:
                    self._ensure("namespaces", {"metadata": {"name": namespace}})
                if kind.name == "Pod":
                    # Create the classes and the account that it needs; admission resolves its priority again.
                    spec = new["spec"]
                    value, policy = spec.pop("priority", 0), spec.pop("preemptionPolicy", "PreemptLowerPriority")
                    if name := spec.get("priorityClassName"):
                        priority_class = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
                        self._ensure("priorityclasses.scheduling.k8s.io", priority_class)
                    if name := spec.get("runtimeClassName"):
                        runtime_class: Object = {"metadata": {"name": name}, "handler": name}
                        if spec.get("overhead"):
                            runtime_class["overhead"] = {"podFixed": spec["overhead"]}
                        self._ensure("runtimeclasses.node.k8s.io", runtime_class)
                    if name := spec.get("serviceAccountName"):
                        self._ensure("serviceaccounts", {"metadata": {"name": name}}, namespace)
                elif kind.name == "Node":
                    # Its kubelet is stopped, unless the annotation says otherwise.
                    ready = get_condition(new.get("status") or {}, "Ready")
                    if ready is not None and ready["status"] == "Unknown":
                        annotations = new["metadata"].get("annotations") or {}
                        new["metadata"]["annotations"] = {KUBELET: STOPPED, **annotations}
                elif kind.name == "PersistentVolume":
                    # The claim gets a new uid, so the reference keeps only its name.
                    (new["spec"].get("claimRef") or {}).pop("uid", None)
                status = new.get("status")
                stored = self._registry.create(kind, namespace, new)
                if status is not None and is_custom and kind.subresources.status:  # which a creation does not set
                    stored = self._registry.update(
                        kind, namespace, stored.name, lambda old: {**old, "status": status}, subresource="status"
                    )
            except statuses.StatusError as refused:
                if kind.name == _DEFINITION or is_custom:
                    self._left_out.append(refused.message)
                    return ""
                raise InputError(self._subject, f"{_describe(kind, new)}: {refused.message}") from None
            _count(self._result.created, kind.name)
        return uid_of(stored)

    def _ensure(self, resource: str, new: Object, namespace: str = "") -> None:
        kind = self._registry.scheme[resource]
        if self._registry.store.collection(kind.storage).get(kind.key(namespace, new["metadata"]["name"])) is None:
            self._registry.create(kind, namespace, kind.struct.read(new, []))


def _current_revision(kind: Kind, owner: Object, revisions: list[Object], pods: list[Object]) -> str:
    """The name of the ControllerRevision with the current template of a dumped owner, "" if it has none yet."""
    status, generation = owner.get("status") or {}, owner["metadata"].get("generation")
    if generation and status.get("observedGeneration", generation) != generation:
        return ""
    if name := status.get("updateRevision"):
        return str(name)
    if revisions:
        newest: str = max(revisions, key=lambda revision: revision.get("revision", 0))["metadata"]["name"]
        return newest
    labels = Counter((pod["metadata"].get("labels") or {}).get(REVISION_LABEL, "") for pod in pods)
    del labels[""]
    if not labels:
        return ""
    most = labels.most_common(1)[0][0]
    return most if kind.name == "StatefulSet" else f"{owner['metadata']['name']}-{most}"


def _owner_uids(new: Object) -> list[str]:
    return [owner.get("uid", "") for owner in new["metadata"].get("ownerReferences") or ()]


def _describe(kind: Kind, new: Object) -> str:
    """Kind and key of an object, for error messages."""
    metadata = new["metadata"]
    return f"{kind.name} {kind.key(metadata.get('namespace', 'default'), metadata['name'])}"


def _count(counts: dict[str, int], kind: str) -> None:
    counts[kind] = counts.get(kind, 0) + 1
