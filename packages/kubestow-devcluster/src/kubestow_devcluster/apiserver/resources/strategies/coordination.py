"""The strategy of leases."""

from __future__ import annotations

from kubestow_devcluster.apiserver.field_errors import FieldError, invalid_value
from kubestow_devcluster.apiserver.resources.strategy import RESTStrategy
from kubestow_devcluster.apiserver.schema import Object

__all__ = ["LeaseStrategy"]


class LeaseStrategy(RESTStrategy):
    allow_create_on_update = True
    allow_unconditional_update = False

    def validate(self, new: Object) -> list[FieldError]:
        errors: list[FieldError] = []
        for name, minimum in (("leaseDurationSeconds", 1), ("leaseTransitions", 0)):
            value = new["spec"].get(name)
            if value is not None and value < minimum:
                bound = "greater than 0" if minimum else "greater than or equal to 0"
                errors.append(invalid_value(f"spec.{name}", value, f"must be {bound}"))
        return errors

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return self.validate(new)
