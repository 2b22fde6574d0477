"""Services and the small kinds of core/v1 that have a default or two."""

from __future__ import annotations

from kubestow.api.names import NameErrors, dns1035_label_errors, path_segment_name_errors
from kubestow.devcluster.apiserver.field_errors import Cause, required_value
from kubestow.devcluster.apiserver.resources.kind import Object, Strategy

__all__ = ["ReviewStrategy", "RoleBindingStrategy", "RoleStrategy", "SecretStrategy", "ServiceStrategy", "SpecStrategy"]


#: What the server chose when the service was created, and keeps where an update is silent about it.
_ALLOCATED = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")


class ServiceStrategy(Strategy):
    delete_returns_object = True

    def default(self, new: Object) -> None:
        spec = new["spec"]
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        for port in spec.get("ports") or ():
            port.setdefault("protocol", "TCP")
            port.setdefault("targetPort", port.get("port"))
        if spec["type"] == "ExternalName":
            return
        spec.setdefault("internalTrafficPolicy", "Cluster")
        if spec["type"] in ("NodePort", "LoadBalancer"):
            spec.setdefault("externalTrafficPolicy", "Cluster")
        if spec["type"] == "LoadBalancer":
            spec.setdefault("allocateLoadBalancerNodePorts", True)

    def prepare_create(self, new: Object, now: str) -> None:
        spec = new["spec"]
        if spec["type"] != "ExternalName":
            spec.setdefault("clusterIP", _address(new["metadata"]["uid"]))
            spec["clusterIPs"] = [spec["clusterIP"]]
            spec.setdefault("ipFamilies", ["IPv4"])
            spec.setdefault("ipFamilyPolicy", "SingleStack")
        new["status"] = {"loadBalancer": {}}

    def prepare_update(self, new: Object, old: Object, now: str) -> None:
        if new["spec"]["type"] != "ExternalName":
            for field in _ALLOCATED:
                if field in old["spec"]:
                    new["spec"].setdefault(field, old["spec"][field])

    def validate(self, new: Object) -> list[Cause]:
        spec = new["spec"]
        if spec.get("ports") or spec.get("clusterIP") == "None" or spec["type"] == "ExternalName":
            return []
        return [required_value("spec.ports")]

    def name_errors(self, name: str) -> NameErrors:
        return dns1035_label_errors(name)


def _address(uid: str) -> str:
    """A cluster IP out of 10.96.0.0/12 that follows from the uid, so no allocator has to be kept."""
    number = int(uid[:8], 16) % (2**20 - 1024) + 512
    return f"10.{96 + (number >> 16)}.{(number >> 8) & 255}.{number & 255}"


class SecretStrategy(Strategy):
    def default(self, new: Object) -> None:
        new.setdefault("type", "Opaque")


class SpecStrategy(Strategy):
    """Kinds with a spec whose changes ``metadata.generation`` counts, and no more to say."""

    has_generation = True


class RoleStrategy(Strategy):
    def name_errors(self, name: str) -> NameErrors:
        return path_segment_name_errors(name)


class RoleBindingStrategy(RoleStrategy):
    def default(self, new: Object) -> None:
        if "roleRef" in new:
            new["roleRef"].setdefault("apiGroup", "rbac.authorization.k8s.io")
        for subject in new.get("subjects") or ():
            subject.setdefault(
                "apiGroup", "" if subject.get("kind") == "ServiceAccount" else "rbac.authorization.k8s.io"
            )


class ReviewStrategy(Strategy):
    """Questions asked by creating an object that is answered and never stored."""
