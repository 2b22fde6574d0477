"""The cluster role aggregation controller: the rules of ClusterRoles with an aggregation rule."""

from __future__ import annotations

from kubestow_devcluster.apiserver.resources import Object
from kubestow_devcluster.apiserver.selectors import matches_label_selector
from kubestow_devcluster.controllers.controller import Controller, ObjectChange

__all__ = ["ClusterRoleAggregationController"]


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
