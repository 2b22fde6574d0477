"""The strategy of resource claims."""

from __future__ import annotations

from kubestow_devcluster.apiserver.field_errors import FieldError, invalid_value, required_value
from kubestow_devcluster.apiserver.resources.strategy import ALL_CLIENT_METADATA, RESTStrategy
from kubestow_devcluster.apiserver.schema import Object

__all__ = ["ResourceClaimStrategy"]


class ResourceClaimStrategy(RESTStrategy):
    kept_by_status_writes = ALL_CLIENT_METADATA

    def set_defaults(self, new: Object) -> None:
        for request in new["spec"].get("devices", {}).get("requests") or ():
            exactly = request.get("exactly")
            for subrequest in [exactly] if exactly is not None else request.get("firstAvailable") or ():
                subrequest.setdefault("allocationMode", "ExactCount")
                if subrequest["allocationMode"] == "ExactCount":
                    subrequest.setdefault("count", 1)

    def prepare_for_create(self, new: Object, now: str) -> None:
        new["status"] = {}

    def validate(self, new: Object) -> list[FieldError]:
        return [
            required_value(f"spec.devices.requests[{index}].name")
            for index, request in enumerate(new["spec"].get("devices", {}).get("requests") or ())
            if not request.get("name")
        ]

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return [] if new["spec"] == old["spec"] else [invalid_value("spec", new["spec"], "field is immutable")]
