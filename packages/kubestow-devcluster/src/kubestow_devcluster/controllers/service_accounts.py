"""The service account ``default`` and the config map ``kube-root-ca.crt`` of each namespace; aggregated roles."""

from __future__ import annotations

from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.registry.admission import DEFAULT_ACCOUNT
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import matches_label_selector
from kubestow_devcluster.component_base.stored_objects import is_terminating
from kubestow_devcluster.controllers.controller import Controller, ControllerContext, ObjectChange

_ROOT_CA = "kube-root-ca.crt"


class _NamespaceContentController(Controller):
    """Keeps one object in each namespace."""

    resource = "namespaces"
    #: The resource and the name of the object.
    content: tuple[str, str]

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        resource, self._name = self.content
        self.content_kind: Kind = context.registry.scheme[resource]

    def handle_change(self, change: ObjectChange) -> None:
        super().handle_change(change)
        if change.resource == self.content_kind.storage and change.event.object.name == self._name:
            self.enqueue(change.event.object.namespace)

    def reconcile(self, key: str) -> None:
        namespace = self.registry.store.collection(self.resource).get(key)
        if namespace is None or is_terminating(namespace):
            return
        desired = self.desired()
        stored = self.registry.store.collection(self.content_kind.storage).get(f"{key}/{self._name}")
        if stored is None:
            new = {"metadata": {"name": self._name}, **desired}
            self.registry.create(self.content_kind, key, self.content_kind.struct.read(new, []))
        elif (current := self.content_kind.decode(stored)) | desired != current:
            self.registry.update(self.content_kind, key, self._name, lambda old: {**old, **desired})

    def desired(self) -> Object:
        """The fields of the object that are kept."""
        return {}


class ServiceAccountController(_NamespaceContentController):
    watched = frozenset({"serviceaccounts"})
    component = "serviceaccount-controller"
    content = ("serviceaccounts", DEFAULT_ACCOUNT)


class RootCAController(_NamespaceContentController):
    """Publishes the certificates with which pods would verify the API server; none without TLS."""

    watched = frozenset({"configmaps"})
    component = "root-ca-certificate-publisher"
    content = ("configmaps", _ROOT_CA)

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._root_ca = context.root_ca

    def desired(self) -> Object:
        return {"data": {"ca.crt": self._root_ca}}


class ClusterRoleAggregationController(Controller):
    resource = "clusterroles.rbac.authorization.k8s.io"
    component = "clusterrole-aggregation-controller"

    def handle_change(self, change: ObjectChange) -> None:
        for stored in self.registry.store.collection(self.resource).snapshot():
            if b'"aggregationRule":' in stored.data:
                self.enqueue(stored.key)

    def reconcile(self, key: str) -> None:
        role = self.get(key)
        selectors = ((role or {}).get("aggregationRule") or {}).get("clusterRoleSelectors")
        if role is None or selectors is None:
            return
        rules: list[Object] = []
        for stored in self.registry.store.collection(self.resource).snapshot():
            if stored.key != key and any(matches_label_selector(one, stored.labels) for one in selectors):
                rules += (rule for rule in self.kind.decode(stored).get("rules") or () if rule not in rules)
        if (role.get("rules") or []) != rules:
            self.registry.update(self.kind, "", key, lambda old: {**old, "rules": rules})
