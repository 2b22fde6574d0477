"""What the generated models do not say: merge keys, quantities, which zero values are written and which left out.

Keys are ``Type.field`` with Go type names (``PodSpec.volumes``). The merge keys are those the API publishes in its
OpenAPI (``x-kubernetes-patch-merge-key``, ``x-kubernetes-list-map-keys``); everything unnamed has the default: lists
and scalars are replaced whole, structs and maps merge by key.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "ALWAYS_THERE",
    "ATOMIC_TYPES",
    "EMITTED",
    "GRANULAR",
    "INT64",
    "INTS_OR_STRINGS",
    "MERGES",
    "MICRO_TIMES",
    "OMITTED_FALSE",
    "OMITTED_ZERO",
    "POINTER_STRINGS",
    "QUANTITIES",
    "Merge",
]


@dataclass(frozen=True, slots=True)
class Merge:
    """How patches combine two lists: ``patch_key`` for strategic merge, ``keys`` for server-side apply.

    ``is_set`` lists merge by value under both; ``retain_keys`` drops what a strategic patch does not list in
    ``$retainKeys``.
    """

    patch_key: str = ""
    keys: tuple[str, ...] = ()
    is_set: bool = False
    retain_keys: bool = False


def _by(key: str, *more: str, retain_keys: bool = False) -> Merge:
    return Merge(patch_key=key, keys=(key, *more), retain_keys=retain_keys)


_NAME, _TYPE = _by("name"), _by("type")
_CONTAINER_LISTS = {
    "env": _NAME,
    "ports": _by("containerPort", "protocol"),
    "volumeDevices": _by("devicePath"),
    "volumeMounts": _by("mountPath"),
}
_WITH_CONDITIONS = (
    "CertificateSigningRequestStatus",
    "ComponentStatus",
    "CronJobStatus",
    "CustomResourceDefinitionStatus",
    "DaemonSetStatus",
    "DeploymentStatus",
    "JobStatus",
    "NamespaceStatus",
    "NodeStatus",
    "PersistentVolumeClaimStatus",
    "PodDisruptionBudgetStatus",
    "PodGroupStatus",
    "PodStatus",
    "ReplicaSetStatus",
    "ReplicationControllerStatus",
    "ServiceStatus",
    "StatefulSetStatus",
)

MERGES: dict[str, Merge] = {
    **{
        f"{container}.{field}": merge
        for container in ("Container", "EphemeralContainer")
        for field, merge in _CONTAINER_LISTS.items()
    },
    **{f"{status}.conditions": _TYPE for status in _WITH_CONDITIONS},
    "AllocatedDeviceStatus.conditions": Merge(keys=("type",)),
    "CSIDriverSpec.volumeLifecycleModes": Merge(is_set=True),
    "CSINodeSpec.drivers": _NAME,
    "ContainerStatus.allocatedResourcesStatus": _NAME,
    "ContainerStatus.volumeMounts": _by("mountPath"),
    "NodeSpec.podCIDRs": Merge(is_set=True),
    "NodeSpec.taints": Merge(patch_key="key"),
    "NodeStatus.addresses": _TYPE,
    "ObjectMeta.finalizers": Merge(is_set=True),
    "ObjectMeta.ownerReferences": _by("uid"),
    "PodSpec.containers": _NAME,
    "PodSpec.ephemeralContainers": _NAME,
    "PodSpec.hostAliases": _by("ip"),
    "PodSpec.imagePullSecrets": _NAME,
    "PodSpec.initContainers": _NAME,
    "PodSpec.resourceClaims": _by("name", retain_keys=True),
    "PodSpec.schedulingGates": _NAME,
    "PodSpec.topologySpreadConstraints": _by("topologyKey", "whenUnsatisfiable"),
    "PodSpec.volumes": _by("name", retain_keys=True),
    "PodStatus.hostIPs": Merge(patch_key="ip"),
    "PodStatus.podIPs": _by("ip"),
    "PodStatus.resourceClaimStatuses": _by("name", retain_keys=True),
    "ResourceClaimStatus.devices": Merge(keys=("driver", "device", "pool", "shareID")),
    "ResourceClaimStatus.reservedFor": _by("uid"),
    "ResourceRequirements.claims": Merge(keys=("name",)),
    "ServiceAccount.imagePullSecrets": Merge(),
    "ServiceAccount.secrets": _NAME,
    "ServiceSpec.ports": _by("port", "protocol"),
    "PodGroupSpec.resourceClaims": _by("name", retain_keys=True),
    "PodGroupStatus.resourceClaimStatuses": _by("name", retain_keys=True),
    "PodGroupTemplate.resourceClaims": _by("name", retain_keys=True),
    "WorkloadSpec.podGroupTemplates": Merge(keys=("name",)),
}

#: Types that server-side apply owns as one value.
ATOMIC_TYPES = frozenset(
    [
        "ConfigMapKeySelector",
        "CrossVersionObjectReference",
        "EndpointAddress",
        "EndpointPort",
        "FileKeySelector",
        "LabelSelector",
        "LocalObjectReference",
        "NodeSelector",
        "NodeSelectorTerm",
        "ObjectFieldSelector",
        "ObjectReference",
        "OwnerReference",
        "ResourceFieldSelector",
        "ScopeSelector",
        "SecretKeySelector",
        "SecretReference",
        "TopologySelectorTerm",
        "TypedLocalObjectReference",
    ]
)
#: Maps owned as one value, and fields of an atomic type that are not.
ATOMIC_MAPS = frozenset({"PodSpec.nodeSelector", "ReplicationControllerSpec.selector", "ServiceSpec.selector"})
GRANULAR = frozenset({"PersistentVolumeSpec.claimRef"})

QUANTITIES = frozenset(
    [
        "CSIStorageCapacity.capacity",
        "CSIStorageCapacity.maximumVolumeSize",
        "CapacityRequirements.requests",
        "ContainerStatus.allocatedResources",
        "Counter.value",
        "DeviceCapacity.value",
        "DeviceRequestAllocationResult.consumedCapacity",
        "EmptyDirVolumeSource.sizeLimit",
        "LimitRangeItem.default",
        "LimitRangeItem.defaultRequest",
        "LimitRangeItem.max",
        "LimitRangeItem.maxLimitRequestRatio",
        "LimitRangeItem.min",
        "NodeStatus.allocatable",
        "NodeStatus.capacity",
        "Overhead.podFixed",
        "PersistentVolumeClaimStatus.allocatedResources",
        "PersistentVolumeClaimStatus.capacity",
        "PersistentVolumeSpec.capacity",
        "PodSpec.overhead",
        "PodStatus.allocatedResources",
        "ResourceFieldSelector.divisor",
        "ResourceQuotaSpec.hard",
        "ResourceQuotaStatus.hard",
        "ResourceQuotaStatus.used",
        "ResourceRequirements.limits",
        "ResourceRequirements.requests",
        "VolumeResourceRequirements.limits",
        "VolumeResourceRequirements.requests",
    ]
)
#: Fields that take a number or a string.
INTS_OR_STRINGS = frozenset(
    [
        "HTTPGetAction.port",
        "NetworkPolicyPort.port",
        "PodDisruptionBudgetSpec.maxUnavailable",
        "PodDisruptionBudgetSpec.minAvailable",
        "RollingUpdateDaemonSet.maxSurge",
        "RollingUpdateDaemonSet.maxUnavailable",
        "RollingUpdateDeployment.maxSurge",
        "RollingUpdateDeployment.maxUnavailable",
        "RollingUpdateStatefulSetStrategy.maxUnavailable",
        "ServicePort.targetPort",
        "TCPSocketAction.port",
    ]
)
#: Times kept to the microsecond; all others are kept to the second.
MICRO_TIMES = frozenset(
    {"Event.eventTime", "EventSeries.lastObservedTime", "LeaseSpec.acquireTime", "LeaseSpec.renewTime"}
)
INT64 = frozenset({"generation", "observedGeneration", "tolerationSeconds", "terminationGracePeriodSeconds"})

#: Fields written even when nobody set them, with their zero value; a dict is written as ``{}`` and filled likewise.
EMITTED: dict[str, object] = {
    **{
        f"{kind}.spec": {}
        for kind in ("Node", "Namespace", "Pod", "Service", "PersistentVolume", "PersistentVolumeClaim")
    },
    **{f"{kind}.spec": {} for kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob")},
    **{f"{kind}.spec": {} for kind in ("Lease", "PodDisruptionBudget", "ResourceClaim", "ReplicationController")},
    **{f"{kind}.spec": {} for kind in ("PodGroup", "Workload")},
    **{f"{kind}.status": {} for kind in ("Node", "Namespace", "Pod", "Service", "PersistentVolume", "ReplicaSet")},
    **{
        f"{kind}.status": {} for kind in ("PersistentVolumeClaim", "ReplicationController", "Deployment", "StatefulSet")
    },
    **{f"{kind}.status": {} for kind in ("DaemonSet", "Job", "CronJob", "ResourceClaim", "PodDisruptionBudget")},
    "Container.resources": {},
    "CSINodeDriver.topologyKeys": None,
    "ContainerStatus.image": "",
    "ContainerStatus.imageID": "",
    "ContainerStatus.lastState": {},
    "ContainerStatus.ready": False,
    "ContainerStatus.restartCount": 0,
    "ContainerStatus.state": {},
    "CoreV1Event.eventTime": None,
    "CoreV1Event.firstTimestamp": None,
    "CoreV1Event.involvedObject": {},
    "CoreV1Event.lastTimestamp": None,
    "CoreV1Event.reportingComponent": "",
    "CoreV1Event.reportingInstance": "",
    "CoreV1Event.source": {},
    "DaemonEndpoint.Port": 0,
    "DaemonSetSpec.updateStrategy": {},
    "DaemonSetStatus.currentNumberScheduled": 0,
    "DaemonSetStatus.desiredNumberScheduled": 0,
    "DaemonSetStatus.numberMisscheduled": 0,
    "DaemonSetStatus.numberReady": 0,
    "DeploymentSpec.strategy": {},
    "EventsV1Event.deprecatedFirstTimestamp": None,
    "EventsV1Event.deprecatedLastTimestamp": None,
    "EventsV1Event.deprecatedSource": {},
    "EventsV1Event.eventTime": None,
    "NodeCondition.lastHeartbeatTime": None,
    "NodeCondition.lastTransitionTime": None,
    "NodeDaemonEndpoints.kubeletEndpoint": {},
    "NodeStatus.daemonEndpoints": {},
    "NodeStatus.nodeInfo": {},
    **{
        f"NodeSystemInfo.{field}": ""
        for field in [
            "machineID",
            "systemUUID",
            "bootID",
            "kernelVersion",
            "osImage",
            "containerRuntimeVersion",
            "kubeletVersion",
            "kubeProxyVersion",
            "operatingSystem",
            "architecture",
        ]
    },
    "PersistentVolumeClaimCondition.lastProbeTime": None,
    "PersistentVolumeClaimCondition.lastTransitionTime": None,
    "PersistentVolumeClaimSpec.resources": {},
    "PodCondition.lastProbeTime": None,
    "PodCondition.lastTransitionTime": None,
    "PodDisruptionBudgetStatus.currentHealthy": 0,
    "PodDisruptionBudgetStatus.desiredHealthy": 0,
    "PodDisruptionBudgetStatus.disruptionsAllowed": 0,
    "PodDisruptionBudgetStatus.expectedPods": 0,
    "ReplicaSetStatus.replicas": 0,
    "ReplicationControllerStatus.replicas": 0,
    "ResourceClaimSpec.devices": {},
    "ServiceStatus.loadBalancer": {},
    "StatefulSetSpec.updateStrategy": {},
    "StatefulSetStatus.availableReplicas": 0,
    "StatefulSetStatus.replicas": 0,
}

#: Structs inside structs (no pointers in Go): they are there even where nothing is written of them.
ALWAYS_THERE = frozenset(
    [
        "CronJobSpec.jobTemplate",
        "JobTemplateSpec.metadata",
        "JobTemplateSpec.spec",
        "PodTemplateSpec.metadata",
        "PodTemplateSpec.spec",
        "ReplicaSetSpec.template",
    ]
)

#: An empty string here is a value of its own (a pointer in Go); elsewhere it is the same as no value.
POINTER_STRINGS = frozenset(
    {"storageClassName", "volumeAttributesClassName", "ingressClassName", "holderIdentity", "value", "appProtocol"}
)
#: Plain booleans and numbers, left out when false or zero. Others are pointers, for which false and zero say something.
OMITTED_FALSE = frozenset(
    [
        "globalDefault",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "paused",
        "publishNotReadyAddresses",
        "readOnly",
        "stdin",
        "stdinOnce",
        "tty",
        "unschedulable",
    ]
)
OMITTED_ZERO = frozenset(
    [
        "count",
        "deprecatedCount",
        "failureThreshold",
        "generation",
        "hostPort",
        "initialDelaySeconds",
        "minReadySeconds",
        "nodePort",
        "observedGeneration",
        "periodSeconds",
        "timeoutSeconds",
    ]
)
#: Pointers all the same, in spite of their name: a driver that takes no volumes at all says 0.
POINTER_NUMBERS = frozenset({"VolumeNodeResources.count"})
