"""The strategies of pods and pod templates: the initial status of a pod, and the few fields that updates can change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from kubestow.api.formats import quantity
from kubestow.api.formats.names import dns1123_label_errors, dns1123_subdomain_errors, qualified_name_errors
from kubestow.rules.defaults import default_pod_level_requests, default_pod_spec, merge_label_keys
from kubestow.rules.pods import is_terminal, qos_class_of
from kubestow_devcluster.apiserver.kinds.kind import RESTStrategy, set_defaults_at
from kubestow_devcluster.apiserver.kinds.object_fields import validate_labels
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.statuses import (
    FieldError,
    duplicate_value,
    forbidden_value,
    invalid_value,
    invalid_values,
    required_value,
    unsupported_value,
    validate_choice,
    validate_name,
)

_IMMUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_ONLY_RESOURCES = "only cpu and memory resources are mutable"
_ONLY_EPHEMERAL_CONTAINERS = "only ephemeral containers may be added through this subresource"
_QOS_CLASS = "Pod QOS Class may not change as a result of resizing"


class PodStrategy(RESTStrategy):
    has_generation = True
    kept_by_status_writes = ("ownerReferences",)
    returns_deleted_object = True

    def set_defaults(self, new: Object) -> None:
        spec = new["spec"]
        complete_pod_spec(spec)
        default_pod_level_requests(spec)
        spec.setdefault("enableServiceLinks", True)

    def prepare_for_create(self, new: Object, now: str) -> None:
        spec = new["spec"]
        merge_label_keys(spec, new["metadata"].get("labels") or {})
        status: dict[str, Any] = {"phase": "Pending"}
        if spec.get("schedulingGates"):
            status["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "lastProbeTime": None,
                    "lastTransitionTime": now,
                    "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                }
            ]
        status["qosClass"] = qos_class_of(spec)
        new["status"] = status

    def validate(self, new: Object) -> list[FieldError]:
        errors: list[FieldError] = []
        if new["spec"].get("ephemeralContainers"):
            errors.append(forbidden_value("spec.ephemeralContainers", "cannot be set on create"))
        return errors + validate_pod_spec(new["spec"], "spec")

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        if new["spec"] == old["spec"]:
            return []
        if _immutable_fields(new["spec"], old["spec"]) != _immutable_fields(old["spec"], old["spec"]):
            return [forbidden_value("spec", _IMMUTABLE)]
        return validate_pod_spec(new["spec"], "spec")

    def validate_subresource_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        match subresource:
            case "resize":
                return _validate_resize(new["spec"], old["spec"])
            case "ephemeralcontainers":
                return _validate_ephemeral_containers(new["spec"], old["spec"])
        return self.validate_update(new, old)

    def graceful_deletion_period(self, old: Object, requested: int | None) -> int | None:
        spec, phase = old["spec"], old.get("status", {}).get("phase")
        period = int(spec.get("terminationGracePeriodSeconds", 30)) if requested is None else requested
        if not spec.get("nodeName") or is_terminal(phase):
            return 0
        return max(period, 1) if period < 0 else period


class PodTemplateStrategy(RESTStrategy):
    def set_defaults(self, new: Object) -> None:
        default_pod_template(new.setdefault("template", {}))


def _validate_resize(new: Object, old: Object) -> list[FieldError]:
    """Only CPU and memory of containers and sidecars can change, and only within the QoS class."""
    if _without_cpu_and_memory(new) != _without_cpu_and_memory(old):
        return [forbidden_value("spec", _ONLY_RESOURCES)]
    if qos_class_of(new) != qos_class_of(old):
        return [invalid_value("spec", qos_class_of(new), _QOS_CLASS)]
    return validate_pod_spec(new, "spec")


def _validate_ephemeral_containers(new: Object, old: Object) -> list[FieldError]:
    """Ephemeral containers can be added; existing ones and all other fields cannot change."""
    before, after = ({**spec, "ephemeralContainers": None} for spec in (old, new))
    if before != after:
        return [forbidden_value("spec", _ONLY_EPHEMERAL_CONTAINERS)]
    path = "spec.ephemeralContainers"
    by_name = {container["name"]: container for container in new.get("ephemeralContainers") or ()}
    errors: list[FieldError] = []
    for index, container in enumerate(old.get("ephemeralContainers") or ()):
        name = container["name"]
        if name not in by_name:
            errors.append(forbidden_value(path, f'existing ephemeral containers "{name}" may not be removed'))
        elif by_name[name] != container:
            problem = f'existing ephemeral containers "{name}" may not be changed'
            errors.append(forbidden_value(f"{path}[{index}]", problem))
    return errors + validate_pod_spec(new, "spec")


def _without_cpu_and_memory(spec: Object) -> Object:
    """The spec without requests and limits for CPU and memory of its containers and sidecars."""
    rest = dict(spec)
    rest["containers"] = [_without_resizable(one) for one in spec["containers"]]
    if "initContainers" in spec:
        rest["initContainers"] = [
            _without_resizable(one) if one.get("restartPolicy") == "Always" else one for one in spec["initContainers"]
        ]
    return rest


def _without_resizable(container: Object) -> Object:
    resources = container.get("resources") or {}
    others = {
        part: {name: amount for name, amount in (resources.get(part) or {}).items() if name not in ("cpu", "memory")}
        for part in ("limits", "requests")
    }
    return container | {"resources": {**resources, **others}}


def _immutable_fields(spec: Object, old: Object) -> Object:
    """The part of ``spec`` that an update of ``old`` cannot change.

    Mutable are images, the deadline, additional tolerations and the removal of scheduling gates.
    """
    rest = {key: value for key, value in spec.items() if key != "activeDeadlineSeconds"}
    for field in ("containers", "initContainers"):
        if field in rest:
            rest[field] = [{key: value for key, value in one.items() if key != "image"} for one in rest[field]]
    tolerations = rest.pop("tolerations", None) or []
    rest["keeps tolerations"] = all(toleration in tolerations for toleration in old.get("tolerations") or ())
    if old.get("terminationGracePeriodSeconds", 0) < 0 and rest.get("terminationGracePeriodSeconds") == 1:
        rest["terminationGracePeriodSeconds"] = old["terminationGracePeriodSeconds"]
    gates = rest.pop("schedulingGates", None) or []
    rest["adds gates"] = any(gate not in (old.get("schedulingGates") or []) for gate in gates)
    if old.get("schedulingGates"):
        # The node selector and affinity of a gated pod can be narrowed.
        rest.pop("nodeSelector", None)
        rest.pop("affinity", None)
    return rest


_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE_DEFAULTS = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
#: Volume sources that have a defaultMode.
_SOURCES_WITH_MODE = ("secret", "configMap", "downwardAPI", "projected")


def default_pod_template(template: Object) -> None:
    complete_pod_spec(template.setdefault("spec", {}))


def complete_pod_spec(spec: Object) -> None:
    """Set all defaults of a pod spec: those that decisions depend on, and those that only show in the API."""
    default_pod_spec(spec)
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        if "imagePullPolicy" not in container:
            container["imagePullPolicy"] = "Always" if _is_latest(container.get("image", "")) else "IfNotPresent"
        for probe in (container[name] for name in _PROBES if name in container):
            set_defaults_at(probe, _PROBE_DEFAULTS)
            if "httpGet" in probe:
                set_defaults_at(probe, {"httpGet.path": "/", "httpGet.scheme": "HTTP"})
        container.setdefault("resources", {})
        for variable in container.get("env") or ():
            field = variable.get("valueFrom", {}).get("fieldRef")
            if field is not None:
                field.setdefault("apiVersion", "v1")
    for volume in spec.get("volumes") or ():
        if len(volume) == 1:
            volume["emptyDir"] = {}
        for source in _SOURCES_WITH_MODE:
            if source in volume:
                volume[source].setdefault("defaultMode", 420)
        if "hostPath" in volume:
            volume["hostPath"].setdefault("type", "")
        for projected in volume.get("projected", {}).get("sources") or ():
            if "serviceAccountToken" in projected:
                projected["serviceAccountToken"].setdefault("expirationSeconds", 3600)
        template = volume.get("ephemeral", {}).get("volumeClaimTemplate")
        if template is not None:
            template.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account


def _is_latest(image: str) -> bool:
    if "@" in image:
        return False
    tag = image.rpartition("/")[2].partition(":")[2]
    return tag in ("", "latest")


TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_TOLERATION_OPERATORS = ("Equal", "Exists", "Gt", "Lt")
_SELECTOR_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_UNSATISFIABLE_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")
_MAX_SYSCTL = 253
_SYSCTL_SEGMENT = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL = rf"({_SYSCTL_SEGMENT}[\./])*{_SYSCTL_SEGMENT}"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def validate_pod_spec(spec: Object, path: str) -> list[FieldError]:
    """The errors of the pod spec at ``path``."""
    errors: list[FieldError] = []
    volume_names: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or ()):
        errors += _validate_unique_name(volume.get("name", ""), f"{path}.volumes[{index}].name", volume_names)
        if len(volume) > 2:
            errors.append(forbidden_value(f"{path}.volumes[{index}]", "may not specify more than 1 volume type"))
    names: set[str] = set()
    if not spec.get("containers"):
        errors.append(required_value(f"{path}.containers"))
    for field in ("containers", "initContainers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            errors += _validate_container(container, f"{path}.{field}[{index}]", names)
    errors += validate_choice(f"{path}.restartPolicy", spec.get("restartPolicy"), _RESTART_POLICIES)
    if selector := spec.get("nodeSelector"):
        errors += validate_labels(selector, f"{path}.nodeSelector")
    if "affinity" in spec:
        errors += _validate_affinity(spec["affinity"], f"{path}.affinity")
    if "nodeName" in spec:
        errors += validate_name(f"{path}.nodeName", spec["nodeName"], dns1123_subdomain_errors)
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        errors += _validate_toleration(toleration, f"{path}.tolerations[{index}]")
    if constraints := spec.get("topologySpreadConstraints"):
        errors += _validate_topology_spread(constraints, f"{path}.topologySpreadConstraints")
    if sysctls := (spec.get("securityContext") or {}).get("sysctls"):
        errors += _validate_sysctls(sysctls, f"{path}.securityContext.sysctls")
    if gates := spec.get("schedulingGates"):
        errors += _validate_scheduling_gates(gates, f"{path}.schedulingGates")
    if group := spec.get("schedulingGroup", {}).get("podGroupName", ""):
        errors += validate_name(f"{path}.schedulingGroup.podGroupName", group, dns1123_subdomain_errors)
    if workload := spec.get("workloadRef"):
        errors += _validate_workload(workload, f"{path}.workloadRef")
    return errors


def _validate_workload(reference: Object, path: str) -> Iterator[FieldError]:
    yield from validate_name(f"{path}.name", reference.get("name", ""), dns1123_subdomain_errors)
    yield from validate_name(f"{path}.podGroup", reference.get("podGroup", ""), dns1123_label_errors)
    if key := reference.get("podGroupReplicaKey"):
        yield from validate_name(f"{path}.podGroupReplicaKey", key, dns1123_label_errors)


def _validate_container(container: Object, path: str, names: set[str]) -> Iterator[FieldError]:
    yield from _validate_unique_name(container.get("name", ""), f"{path}.name", names)
    if not container.get("image"):
        yield required_value(f"{path}.image")
    elif container["image"].strip() != container["image"]:
        yield invalid_value(f"{path}.image", container["image"], "must not have leading or trailing whitespace")
    for index, port in enumerate(container.get("ports") or ()):
        yield from _validate_port(port, f"{path}.ports[{index}]")
    if resources := container.get("resources"):
        yield from _validate_resources(resources, f"{path}.resources")


def _validate_unique_name(name: str, path: str, names: set[str]) -> list[FieldError]:
    """Validate the name of a container or volume, and add it to ``names``."""
    is_duplicate = name in names
    names.add(name)
    if not name:
        return [required_value(path)]
    if name_errors := dns1123_label_errors(name):
        return invalid_values(path, name, name_errors)
    return [duplicate_value(path, name)] if is_duplicate else []


def _validate_port(port: Object, path: str) -> Iterator[FieldError]:
    if not port.get("containerPort"):
        yield required_value(f"{path}.containerPort")
    for field in ("containerPort", "hostPort"):
        if port.get(field) and not 0 < port[field] < 65536:
            yield invalid_value(f"{path}.{field}", port[field], "must be between 1 and 65535, inclusive")
    yield from validate_choice(f"{path}.protocol", port.get("protocol"), _PROTOCOLS)


def _validate_resources(resources: Object, path: str) -> Iterator[FieldError]:
    limits = resources.get("limits") or {}
    for field in ("limits", "requests"):
        for name, amount in (resources.get(field) or {}).items():
            if amount[0] == "-":
                yield invalid_value(f"{path}.{field}[{name}]", amount, "must be greater than or equal to 0")
            elif name_errors := qualified_name_errors(name):
                yield from invalid_values(f"{path}.{field}", name, name_errors)
            elif field == "requests" and amount != limits.get(name, amount):
                if "/" in name:
                    problem = f"must be equal to {name} limit of {limits[name]}"
                    yield invalid_value(f"{path}.requests", amount, problem)
                elif quantity.parse(amount) > quantity.parse(limits[name]):
                    problem = f"must be less than or equal to {name} limit of {limits[name]}"
                    yield invalid_value(f"{path}.requests", amount, problem)


def _validate_toleration(toleration: Object, path: str) -> Iterator[FieldError]:
    key, operator, effect = (toleration.get(field, "") for field in ("key", "operator", "effect"))
    if key:
        yield from validate_name(f"{path}.key", key, qualified_name_errors)
    if not key and operator != "Exists":
        problem = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield invalid_value(f"{path}.operator", operator, problem)
    if operator == "Exists" and toleration.get("value"):
        problem = "value must be empty when `operator` is 'Exists'"
        yield invalid_value(f"{path}.operator", toleration["value"], problem)
    if operator and operator not in _TOLERATION_OPERATORS:
        yield unsupported_value(f"{path}.operator", operator, _TOLERATION_OPERATORS)
    if effect and effect not in TAINT_EFFECTS:
        yield unsupported_value(f"{path}.effect", effect, TAINT_EFFECTS)
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        yield invalid_value(f"{path}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")


def _validate_topology_spread(constraints: Iterable[Object], path: str) -> Iterator[FieldError]:
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(constraints):
        item = f"{path}[{index}]"
        skew, key, action = (constraint.get(name) for name in ("maxSkew", "topologyKey", "whenUnsatisfiable"))
        if not isinstance(skew, int) or skew <= 0:
            yield invalid_value(f"{item}.maxSkew", skew or 0, "must be greater than zero")
        if not key:
            yield required_value(f"{item}.topologyKey", "can not be empty")
        yield from validate_choice(f"{item}.whenUnsatisfiable", action or "", _UNSATISFIABLE_ACTIONS)
        if (key, action) in seen:
            yield duplicate_value(f"{item}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}")
        seen.add((str(key), str(action)))
        minimum = constraint.get("minDomains")
        if minimum is not None and minimum <= 0:
            yield invalid_value(f"{item}.minDomains", minimum, "must be greater than zero")
        if minimum is not None and action != "DoNotSchedule":
            problem = "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway"
            yield invalid_value(f"{item}.minDomains", minimum, problem)


def _validate_sysctls(sysctls: Iterable[Object], path: str) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, sysctl in enumerate(sysctls):
        name, name_path = sysctl.get("name", ""), f"{path}[{index}].name"
        if not name:
            yield required_value(name_path)
        elif len(name) > _MAX_SYSCTL or not re.fullmatch(_SYSCTL, name):
            problem = f"must have at most {_MAX_SYSCTL} characters and match regex ^{_SYSCTL}$"
            yield invalid_value(name_path, name, problem)
        elif name in names:
            yield duplicate_value(name_path, name)
        names.add(name)


def _validate_scheduling_gates(gates: Iterable[Object], path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name", "")
        yield from validate_name(f"{path}[{index}]", name, qualified_name_errors)
        if name in seen:
            yield duplicate_value(f"{path}[{index}]", name)
        seen.add(name)


def _validate_affinity(affinity: Object, path: str) -> Iterator[FieldError]:
    node_affinity = affinity.get("nodeAffinity", {})
    required = node_affinity.get(_REQUIRED)
    if required is not None:
        terms_path = f"{path}.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
        if not required.get("nodeSelectorTerms"):
            yield required_value(terms_path, "must have at least one node selector term")
        for index, term in enumerate(required.get("nodeSelectorTerms") or ()):
            yield from _validate_node_selector_term(term, f"{terms_path}[{index}]")
    for index, preferred in enumerate(node_affinity.get(_PREFERRED) or ()):
        item = f"{path}.nodeAffinity.{_PREFERRED}[{index}]"
        yield from _validate_weight(preferred, item)
        yield from _validate_node_selector_term(preferred.get("preference") or {}, f"{item}.preference")
    for name in ("podAffinity", "podAntiAffinity"):
        pod_affinity = affinity.get(name) or {}
        for index, term in enumerate(pod_affinity.get(_REQUIRED) or ()):
            yield from _validate_topology_key(term, f"{path}.{name}.{_REQUIRED}[{index}]")
        for index, weighted in enumerate(pod_affinity.get(_PREFERRED) or ()):
            item = f"{path}.{name}.{_PREFERRED}[{index}]"
            yield from _validate_weight(weighted, item)
            yield from _validate_topology_key(weighted.get("podAffinityTerm") or {}, f"{item}.podAffinityTerm")


def _validate_topology_key(term: Object, path: str) -> list[FieldError]:
    key = term.get("topologyKey")
    if not key:
        return [required_value(f"{path}.topologyKey", "can not be empty")]
    return validate_name(f"{path}.topologyKey", key, qualified_name_errors)


def _validate_weight(weighted: Object, path: str) -> Iterator[FieldError]:
    weight = weighted.get("weight", 0)
    if not 1 <= weight <= 100:
        yield invalid_value(f"{path}.weight", weight, "must be in the range 1-100")


def _validate_node_selector_term(term: Object, path: str) -> Iterator[FieldError]:
    for index, requirement in enumerate(term.get("matchExpressions") or ()):
        item = f"{path}.matchExpressions[{index}]"
        key, operator = requirement.get("key", ""), requirement.get("operator", "")
        values = requirement.get("values") or ()
        yield from validate_name(f"{item}.key", key, qualified_name_errors)
        if operator not in _SELECTOR_OPERATORS:
            yield invalid_value(f"{item}.operator", operator, "not a valid selector operator")
        elif operator in ("In", "NotIn") and not values:
            yield required_value(f"{item}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in ("Exists", "DoesNotExist") and values:
            problem = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield forbidden_value(f"{item}.values", problem)
        elif operator in ("Gt", "Lt") and len(values) != 1:
            yield required_value(f"{item}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
