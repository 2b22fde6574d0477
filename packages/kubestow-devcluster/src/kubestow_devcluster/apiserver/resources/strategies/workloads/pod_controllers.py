"""The base strategy of kinds whose controllers create pods from a template, and what their specs have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from kubestow_devcluster.apiserver.field_errors import FieldError, invalid_value, required_value, unsupported_value
from kubestow_devcluster.apiserver.resources import object_meta
from kubestow_devcluster.apiserver.resources.strategies.pod_spec_defaults import default_pod_template
from kubestow_devcluster.apiserver.resources.strategies.pod_spec_validation import validate_pod_spec
from kubestow_devcluster.apiserver.resources.strategy import RESTStrategy
from kubestow_devcluster.apiserver.schema import Object

__all__ = ["PodControllerStrategy", "template_labels", "validate_not_negative"]


class PodControllerStrategy(RESTStrategy):
    """Kinds with a pod template, a selector that must match its labels, and a status that the controller writes."""

    has_generation = True
    #: The status of a new object, before its controller updates it.
    initial_status: ClassVar[dict[str, Any]] = {}
    #: The kind as error messages name it.
    noun: ClassVar = "deployment"
    #: Whether the template must have restartPolicy Always.
    requires_restart_always: ClassVar = True

    def set_defaults(self, new: Object) -> None:
        spec = new["spec"]
        default_pod_template(spec.setdefault("template", {}))
        self.default_spec(spec)

    def default_spec(self, spec: Object) -> None:
        """Set the defaults of the spec apart from the template."""

    def prepare_for_create(self, new: Object, now: str) -> None:
        new["status"] = dict(self.initial_status)

    def validate(self, new: Object) -> list[FieldError]:
        spec = new["spec"]
        errors = self.validate_selector(spec)
        errors += validate_not_negative(spec, ("replicas", "minReadySeconds", "revisionHistoryLimit"), "spec")
        errors += self.validate_spec(spec)
        errors += object_meta.validate_labels(template_labels(spec), "spec.template.labels")
        template = spec["template"].get("spec", {})
        if self.requires_restart_always and template.get("restartPolicy") in ("OnFailure", "Never"):
            path = "spec.template.spec.restartPolicy"
            errors.append(unsupported_value(path, template["restartPolicy"], ("Always",)))
        return errors + validate_pod_spec(template, "spec.template.spec")

    def validate_spec(self, spec: Object) -> list[FieldError]:
        """Validate the fields that only this kind has."""
        return []

    def validate_selector(self, spec: Object) -> list[FieldError]:
        selector = spec.get("selector")
        if selector is None:
            return [required_value("spec.selector")]
        match_labels, labels = selector.get("matchLabels") or {}, template_labels(spec)
        if not match_labels and not selector.get("matchExpressions"):
            return [invalid_value("spec.selector", selector, f"empty selector is invalid for {self.noun}")]
        if any(labels.get(key) != value for key, value in match_labels.items()):
            problem = "`selector` does not match template `labels`"
            return [invalid_value("spec.template.metadata.labels", labels, problem)]
        return []

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        errors = self.validate(new)
        if new["spec"].get("selector") != old["spec"].get("selector"):
            errors.append(invalid_value("spec.selector", new["spec"].get("selector"), "field is immutable"))
        return errors


def validate_not_negative(obj: Object, fields: Sequence[str], path: str) -> list[FieldError]:
    """Validate that these fields of the object at ``path`` are not negative."""
    return [
        invalid_value(f"{path}.{field}", obj[field], "must be greater than or equal to 0")
        for field in fields
        if obj.get(field, 0) < 0
    ]


def template_labels(spec: Object) -> dict[str, str]:
    labels: dict[str, str] = spec["template"].get("metadata", {}).get("labels") or {}
    return labels
