"""The strategies of namespaces, config maps, limit ranges, resource quotas, secrets and services."""

from __future__ import annotations

import re

from kubestow.api.formats.names import NameErrors, dns1035_label_errors, dns1123_label_errors
from kubestow_devcluster.apiserver.field_errors import FieldError, invalid_value, required_value
from kubestow_devcluster.apiserver.resources.strategy import RESTStrategy
from kubestow_devcluster.apiserver.schema import Object

__all__ = [
    "ConfigMapStrategy",
    "LimitRangeStrategy",
    "NamespaceStrategy",
    "ResourceQuotaStrategy",
    "SecretStrategy",
    "ServiceStrategy",
]

_UNDELETABLE_NAMESPACES = ("default", "kube-public", "kube-system")
_MAX_KEY = 253
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_INVALID_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',"
    "  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
#: Service fields that the server allocates, and keeps when an update omits them.
_ALLOCATED = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")


class NamespaceStrategy(RESTStrategy):
    returns_deleted_object = True

    def set_defaults(self, new: Object) -> None:
        labels = new["metadata"].setdefault("labels", {})
        if new["metadata"].get("name"):
            labels["kubernetes.io/metadata.name"] = new["metadata"]["name"]

    def prepare_for_create(self, new: Object, now: str) -> None:
        new["spec"]["finalizers"] = ["kubernetes"]
        new["status"] = {"phase": "Active"}

    def validate_name(self, name: str) -> NameErrors:
        return dns1123_label_errors(name)

    def validate_delete(self, name: str) -> str:
        return "this namespace may not be deleted" if name in _UNDELETABLE_NAMESPACES else ""


class LimitRangeStrategy(RESTStrategy):
    def set_defaults(self, new: Object) -> None:
        """The default limit is the maximum, the default request the default limit or else the minimum."""
        for item in (new.get("spec") or {}).get("limits") or ():
            if item.get("type") != "Container":
                continue
            default = {**(item.get("max") or {}), **(item.get("default") or {})}
            request = {**(item.get("min") or {}), **default, **(item.get("defaultRequest") or {})}
            for field, values in (("default", default), ("defaultRequest", request)):
                if values:
                    item[field] = values


class ResourceQuotaStrategy(RESTStrategy):
    def prepare_for_create(self, new: Object, now: str) -> None:
        new["status"] = {}


class SecretStrategy(RESTStrategy):
    def set_defaults(self, new: Object) -> None:
        new.setdefault("type", "Opaque")

    def validate(self, new: Object) -> list[FieldError]:
        return [error for key in new.get("data") or () for error in _key_errors("data", key)]

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return self.validate(new)


class ConfigMapStrategy(RESTStrategy):
    def validate(self, new: Object) -> list[FieldError]:
        fields = ("data", "binaryData")
        return [error for field in fields for key in new.get(field) or () for error in _key_errors(field, key)]

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return self.validate(new)


class ServiceStrategy(RESTStrategy):
    returns_deleted_object = True

    def set_defaults(self, new: Object) -> None:
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

    def prepare_for_create(self, new: Object, now: str) -> None:
        spec = new["spec"]
        if spec["type"] != "ExternalName":
            spec.setdefault("clusterIP", _cluster_ip(new["metadata"]["uid"]))
            spec["clusterIPs"] = [spec["clusterIP"]]
            spec.setdefault("ipFamilies", ["IPv4"])
            spec.setdefault("ipFamilyPolicy", "SingleStack")
        new["status"] = {"loadBalancer": {}}

    def prepare_for_update(self, new: Object, old: Object, now: str) -> None:
        if new["spec"]["type"] != "ExternalName":
            for field in _ALLOCATED:
                if field in old["spec"]:
                    new["spec"].setdefault(field, old["spec"][field])

    def validate(self, new: Object) -> list[FieldError]:
        spec = new["spec"]
        if spec.get("ports") or spec.get("clusterIP") == "None" or spec["type"] == "ExternalName":
            return []
        return [required_value("spec.ports")]

    def validate_name(self, name: str) -> NameErrors:
        return dns1035_label_errors(name)


def _cluster_ip(uid: str) -> str:
    """An address in 10.96.0.0/12 derived from the uid, which makes an allocator unnecessary."""
    number = int(uid[:8], 16) % (2**20 - 1024) + 512
    return f"10.{96 + (number >> 16)}.{(number >> 8) & 255}.{number & 255}"


def _key_errors(field: str, key: str) -> list[FieldError]:
    """The errors of a key in the data of a config map or secret."""
    path = f"{field}[{key}]"
    if len(key) > _MAX_KEY:
        return [invalid_value(path, key, f"must be no more than {_MAX_KEY} characters")]
    if not _KEY.fullmatch(key):
        return [invalid_value(path, key, _INVALID_KEY)]
    if key in (".", "..") or key.startswith(".."):
        problem = f"must not be '{key}'" if key in (".", "..") else "must not start with '..'"
        return [invalid_value(path, key, problem)]
    return []
