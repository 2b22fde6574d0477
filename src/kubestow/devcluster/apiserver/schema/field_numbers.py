"""The numbers that fields have in protobuf, for the messages that kubectl sends in it.

One message a line: its Go name, then its fields in the order of their numbers, which begin at 1; ``7:name`` is where a
number does not follow the one before. ``>Name`` stands for a message whose fields are the holder's own in JSON (an
embedded struct in Go). After ``name~`` a zero says nothing, though it is always sent (no pointer in Go); which other
zeros say nothing is in ``conventions``. The types of the fields are those of the schema.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

__all__ = ["Numbered", "numbers_of"]


class Numbered(NamedTuple):
    """What a number stands for: a field, or, ``embedded``, a message whose fields are the holder's own."""

    name: str
    embedded: bool
    zero_is_nothing: bool


@cache
def numbers_of(message: str) -> dict[int, Numbered]:
    """The fields of a message by number. Raises KeyError for a message that is not in the table."""
    numbers: dict[int, Numbered] = {}
    number = 0
    for word in _lines()[message]:
        at, given, name = word.rpartition(":")
        number = int(at) if given else number + 1
        numbers[number] = Numbered(name.strip(">~"), name.startswith(">"), name.endswith("~"))
    return numbers


@cache
def _lines() -> dict[str, list[str]]:
    lines = (line.split() for line in _TABLE.replace("\n    ", " ").strip().splitlines())
    return {message: words for message, *words in lines}


_TABLE = """
AWSElasticBlockStoreVolumeSource volumeID fsType partition~ readOnly
Affinity nodeAffinity podAffinity podAntiAffinity
AggregationRule clusterRoleSelectors
AppArmorProfile type localhostProfile
AzureDiskVolumeSource diskName diskURI cachingMode fsType readOnly kind
AzureFileVolumeSource secretName shareName readOnly
Binding metadata target
CSIVolumeSource driver readOnly fsType volumeAttributes nodePublishSecretRef
Capabilities add drop
CephFSVolumeSource monitors path user secretFile secretRef readOnly
CinderVolumeSource volumeID fsType readOnly secretRef
ClientIPConfig timeoutSeconds
ClusterRole metadata rules aggregationRule
ClusterRoleBinding metadata subjects roleRef
ClusterTrustBundleProjection name signerName labelSelector path optional
Condition type status observedGeneration lastTransitionTime reason message
ConfigMap metadata data binaryData immutable
ConfigMapEnvSource >LocalObjectReference optional
ConfigMapKeySelector >LocalObjectReference key optional
ConfigMapProjection >LocalObjectReference items 4:optional
ConfigMapVolumeSource >LocalObjectReference items defaultMode optional
Container name image command args workingDir ports env resources volumeMounts livenessProbe readinessProbe lifecycle
    terminationMessagePath imagePullPolicy securityContext stdin stdinOnce tty envFrom terminationMessagePolicy
    volumeDevices startupProbe resizePolicy restartPolicy restartPolicyRules
ContainerExtendedResourceRequest containerName resourceName requestName
ContainerPort name hostPort containerPort protocol hostIP
ContainerResizePolicy resourceName restartPolicy
ContainerRestartRule action exitCodes
ContainerRestartRuleOnExitCodes operator values
ContainerState waiting running terminated
ContainerStateRunning startedAt
ContainerStateTerminated exitCode signal~ reason message startedAt finishedAt containerID
ContainerStateWaiting reason message
ContainerStatus name state lastState ready restartCount image imageID containerID started allocatedResources
    resources volumeMounts user allocatedResourcesStatus stopSignal
ContainerUser linux
CronJob metadata spec status
CronJobSpec schedule startingDeadlineSeconds concurrencyPolicy suspend jobTemplate successfulJobsHistoryLimit
    failedJobsHistoryLimit timeZone
CronJobStatus active 4:lastScheduleTime lastSuccessfulTime
DaemonSet metadata spec status
DaemonSetCondition type status lastTransitionTime reason message
DaemonSetSpec selector template updateStrategy minReadySeconds 6:revisionHistoryLimit
DaemonSetStatus currentNumberScheduled numberMisscheduled desiredNumberScheduled numberReady observedGeneration
    updatedNumberScheduled~ numberAvailable~ numberUnavailable~ collisionCount conditions
DaemonSetUpdateStrategy type rollingUpdate
DeleteOptions gracePeriodSeconds preconditions orphanDependents propagationPolicy dryRun
    ignoreStoreReadErrorWithClusterBreakingPotential
Deployment metadata spec status
DeploymentCondition type status 4:reason message lastUpdateTime lastTransitionTime
DeploymentSpec replicas selector template strategy minReadySeconds revisionHistoryLimit paused
    9:progressDeadlineSeconds
DeploymentStatus observedGeneration replicas~ updatedReplicas~ availableReplicas~ unavailableReplicas~ conditions
    readyReplicas~ collisionCount terminatingReplicas
DeploymentStrategy type rollingUpdate
DownwardAPIProjection items
DownwardAPIVolumeFile path fieldRef resourceFieldRef mode
DownwardAPIVolumeSource items defaultMode
EmptyDirVolumeSource medium sizeLimit
EnvFromSource prefix configMapRef secretRef
EnvVar name value~ valueFrom
EnvVarSource fieldRef resourceFieldRef configMapKeyRef secretKeyRef fileKeyRef
EphemeralContainer >EphemeralContainerCommon targetContainerName
EphemeralContainerCommon name image command args workingDir ports env resources volumeMounts livenessProbe
    readinessProbe lifecycle terminationMessagePath imagePullPolicy securityContext stdin stdinOnce tty envFrom
    terminationMessagePolicy volumeDevices startupProbe resizePolicy restartPolicy restartPolicyRules
EphemeralVolumeSource volumeClaimTemplate
Eviction metadata deleteOptions
ExecAction command
FCVolumeSource targetWWNs lun fsType readOnly wwids
FieldSelectorAttributes rawSelector requirements
FieldSelectorRequirement key operator values
FileKeySelector volumeName path key optional
FlexVolumeSource driver fsType secretRef readOnly options
FlockerVolumeSource datasetName datasetUUID
GCEPersistentDiskVolumeSource pdName fsType partition~ readOnly
GRPCAction port service
GitRepoVolumeSource repository revision directory
GlusterfsVolumeSource endpoints path readOnly
HTTPGetAction path port host scheme httpHeaders
HTTPHeader name value
HTTPIngressPath path backend pathType
HTTPIngressRuleValue paths
HostAlias ip hostnames
HostIP ip
HostPathVolumeSource path type
ISCSIVolumeSource targetPortal iqn lun iscsiInterface fsType readOnly portals chapAuthDiscovery~ 10:secretRef
    chapAuthSession~ initiatorName
ImageVolumeSource reference pullPolicy
ImageVolumeStatus imageRef
Ingress metadata spec status
IngressBackend 3:resource service
IngressLoadBalancerIngress ip hostname 4:ports
IngressLoadBalancerStatus ingress
IngressPortStatus port protocol error
IngressRule host >IngressRuleValue
IngressRuleValue http
IngressServiceBackend name port~
IngressSpec defaultBackend tls rules ingressClassName
IngressStatus loadBalancer
IngressTLS hosts secretName
Job metadata spec status
JobCondition type status lastProbeTime lastTransitionTime reason message
JobSpec parallelism completions activeDeadlineSeconds selector manualSelector template backoffLimit
    ttlSecondsAfterFinished completionMode suspend podFailurePolicy backoffLimitPerIndex maxFailedIndexes
    podReplacementPolicy managedBy successPolicy
JobStatus conditions startTime completionTime active~ succeeded~ failed~ completedIndexes uncountedTerminatedPods
    ready failedIndexes terminating
JobTemplateSpec metadata spec
KeyToPath key path mode
LabelSelector matchLabels matchExpressions
LabelSelectorAttributes rawSelector requirements
LabelSelectorRequirement key operator values
Lifecycle postStart preStop stopSignal
LifecycleHandler exec httpGet tcpSocket sleep
LinuxContainerUser uid gid supplementalGroups
LoadBalancerIngress ip hostname ipMode ports
LoadBalancerStatus ingress
LocalObjectReference name
ManagedFieldsEntry manager operation apiVersion time 6:fieldsType fieldsV1 subresource
ModifyVolumeStatus targetVolumeAttributesClassName status
NFSVolumeSource server path readOnly
Namespace metadata spec status
NamespaceCondition type status 4:lastTransitionTime reason message
NamespaceSpec finalizers
NamespaceStatus phase conditions
NodeAffinity requiredDuringSchedulingIgnoredDuringExecution preferredDuringSchedulingIgnoredDuringExecution
NodeAllocatableResourceClaimStatus resourceClaimName containers
NodeSelector nodeSelectorTerms
NodeSelectorRequirement key operator values
NodeSelectorTerm matchExpressions matchFields
NonResourceAttributes path verb
NonResourceRule verbs nonResourceURLs
ObjectFieldSelector apiVersion fieldPath
ObjectMeta name generateName namespace selfLink uid resourceVersion generation creationTimestamp deletionTimestamp
    deletionGracePeriodSeconds labels annotations ownerReferences finalizers 17:managedFields
ObjectReference kind namespace name uid apiVersion resourceVersion fieldPath
OwnerReference kind 3:name uid apiVersion controller blockOwnerDeletion
PersistentVolumeClaim metadata spec status
PersistentVolumeClaimCondition type status lastProbeTime lastTransitionTime reason message
PersistentVolumeClaimSpec accessModes resources volumeName selector storageClassName volumeMode dataSource
    dataSourceRef volumeAttributesClassName
PersistentVolumeClaimStatus phase accessModes capacity conditions allocatedResources 7:allocatedResourceStatuses
    currentVolumeAttributesClassName modifyVolumeStatus
PersistentVolumeClaimTemplate metadata spec
PersistentVolumeClaimVolumeSource claimName readOnly
PhotonPersistentDiskVolumeSource pdID fsType
Pod metadata spec status
PodAffinity requiredDuringSchedulingIgnoredDuringExecution preferredDuringSchedulingIgnoredDuringExecution
PodAffinityTerm labelSelector namespaces topologyKey namespaceSelector matchLabelKeys mismatchLabelKeys
PodAntiAffinity requiredDuringSchedulingIgnoredDuringExecution preferredDuringSchedulingIgnoredDuringExecution
PodCertificateProjection signerName keyType maxExpirationSeconds credentialBundlePath keyPath certificateChainPath
    userAnnotations
PodCondition type status lastProbeTime lastTransitionTime reason message observedGeneration
PodDNSConfig nameservers searches options
PodDNSConfigOption name value
PodDisruptionBudget metadata spec status
PodDisruptionBudgetSpec minAvailable selector maxUnavailable unhealthyPodEvictionPolicy
PodDisruptionBudgetStatus observedGeneration disruptedPods disruptionsAllowed currentHealthy desiredHealthy
    expectedPods conditions
PodExtendedResourceClaimStatus requestMappings resourceClaimName
PodFailurePolicy rules
PodFailurePolicyOnExitCodesRequirement containerName operator values
PodFailurePolicyOnPodConditionsPattern type status
PodFailurePolicyRule action onExitCodes onPodConditions
PodIP ip
PodOS name
PodReadinessGate conditionType
PodResourceClaim name 3:resourceClaimName resourceClaimTemplateName
PodResourceClaimStatus name resourceClaimName
PodSchedulingGate name
PodSchedulingGroup podGroupName
PodSecurityContext seLinuxOptions runAsUser runAsNonRoot supplementalGroups fsGroup runAsGroup sysctls
    windowsOptions fsGroupChangePolicy seccompProfile appArmorProfile supplementalGroupsPolicy seLinuxChangePolicy
PodSpec volumes containers restartPolicy terminationGracePeriodSeconds activeDeadlineSeconds dnsPolicy nodeSelector
    serviceAccountName serviceAccount nodeName hostNetwork hostPID hostIPC securityContext imagePullSecrets hostname
    subdomain affinity schedulerName initContainers automountServiceAccountToken tolerations hostAliases
    priorityClassName priority dnsConfig shareProcessNamespace readinessGates runtimeClassName enableServiceLinks
    preemptionPolicy overhead topologySpreadConstraints ephemeralContainers setHostnameAsFQDN os hostUsers
    schedulingGates resourceClaims resources hostnameOverride 43:schedulingGroup
PodStatus phase conditions message reason hostIP podIP startTime containerStatuses qosClass initContainerStatuses
    nominatedNodeName podIPs ephemeralContainerStatuses resize resourceClaimStatuses hostIPs observedGeneration
    extendedResourceClaimStatus allocatedResources resources nodeAllocatableResourceClaimStatuses
PodTemplateSpec metadata spec
PolicyRule verbs apiGroups resources resourceNames nonResourceURLs
PortStatus port protocol error
PortworxVolumeSource volumeID fsType readOnly
Preconditions uid resourceVersion
PreferredSchedulingTerm weight preference
PriorityClass metadata value globalDefault description preemptionPolicy
Probe >ProbeHandler initialDelaySeconds timeoutSeconds periodSeconds successThreshold~ failureThreshold
    terminationGracePeriodSeconds
ProbeHandler exec httpGet tcpSocket grpc
ProjectedVolumeSource sources defaultMode
QuobyteVolumeSource registry volume readOnly user group tenant
RBDVolumeSource monitors image fsType pool user keyring secretRef readOnly
ReplicaSet metadata spec status
ReplicaSetCondition type status lastTransitionTime reason message
ReplicaSetSpec replicas selector template minReadySeconds
ReplicaSetStatus replicas fullyLabeledReplicas~ observedGeneration readyReplicas~ availableReplicas~ conditions
    terminatingReplicas
ResourceAttributes namespace verb group version resource subresource name fieldSelector labelSelector
ResourceClaim name request
ResourceFieldSelector containerName resource divisor
ResourceHealth resourceID health 6:message
ResourceQuota metadata spec status
ResourceQuotaSpec hard scopes scopeSelector
ResourceQuotaStatus hard used
ResourceRequirements limits requests claims
ResourceRule verbs apiGroups resources resourceNames
ResourceStatus name resources
Role metadata rules
RoleBinding metadata subjects roleRef
RoleRef apiGroup kind name
RollingUpdateDaemonSet maxUnavailable maxSurge
RollingUpdateDeployment maxUnavailable maxSurge
RollingUpdateStatefulSetStrategy partition maxUnavailable
SELinuxOptions user role type level
ScaleIOVolumeSource gateway system secretRef sslEnabled~ protectionDomain storagePool storageMode volumeName fsType
    readOnly
ScopeSelector matchExpressions
ScopedResourceSelectorRequirement scopeName operator values
SeccompProfile type localhostProfile
Secret metadata data type stringData immutable
SecretEnvSource >LocalObjectReference optional
SecretKeySelector >LocalObjectReference key optional
SecretProjection >LocalObjectReference items 4:optional
SecretVolumeSource secretName items defaultMode optional
SecurityContext capabilities privileged seLinuxOptions runAsUser runAsNonRoot readOnlyRootFilesystem
    allowPrivilegeEscalation runAsGroup procMount windowsOptions seccompProfile appArmorProfile
SelfSubjectAccessReview metadata spec status
SelfSubjectAccessReviewSpec resourceAttributes nonResourceAttributes
SelfSubjectReview metadata status
SelfSubjectReviewStatus userInfo
SelfSubjectRulesReview metadata spec status
SelfSubjectRulesReviewSpec namespace
Service metadata spec status
ServiceAccount metadata secrets imagePullSecrets automountServiceAccountToken
ServiceAccountTokenProjection audience expirationSeconds path
ServiceBackendPort name number~
ServicePort name protocol port targetPort~ nodePort appProtocol
ServiceSpec ports selector clusterIP type externalIPs 7:sessionAffinity loadBalancerIP loadBalancerSourceRanges
    externalName externalTrafficPolicy healthCheckNodePort~ publishNotReadyAddresses sessionAffinityConfig
    17:ipFamilyPolicy clusterIPs ipFamilies allocateLoadBalancerNodePorts loadBalancerClass internalTrafficPolicy
    trafficDistribution
ServiceStatus loadBalancer conditions
SessionAffinityConfig clientIP
SleepAction seconds
StatefulSet metadata spec status
StatefulSetCondition type status lastTransitionTime reason message
StatefulSetOrdinals start
StatefulSetPersistentVolumeClaimRetentionPolicy whenDeleted whenScaled
StatefulSetSpec replicas selector template volumeClaimTemplates serviceName podManagementPolicy updateStrategy
    revisionHistoryLimit minReadySeconds persistentVolumeClaimRetentionPolicy ordinals
StatefulSetStatus observedGeneration replicas readyReplicas~ currentReplicas~ updatedReplicas~ currentRevision
    updateRevision 9:collisionCount conditions availableReplicas
StatefulSetUpdateStrategy type rollingUpdate
StorageOSVolumeSource volumeName volumeNamespace fsType readOnly secretRef
Subject kind apiGroup name namespace
SubjectAccessReview metadata spec status
SubjectAccessReviewSpec resourceAttributes nonResourceAttributes user groups extra uid
SubjectAccessReviewStatus allowed reason evaluationError denied~
SubjectRulesReviewStatus resourceRules nonResourceRules incomplete evaluationError
SuccessPolicy rules
SuccessPolicyRule succeededIndexes succeededCount
Sysctl name value
TCPSocketAction port host
Toleration key operator value~ effect tolerationSeconds
TopologySpreadConstraint maxSkew topologyKey whenUnsatisfiable labelSelector minDomains nodeAffinityPolicy
    nodeTaintsPolicy matchLabelKeys
TypedLocalObjectReference apiGroup kind name
TypedObjectReference apiGroup kind name namespace
UncountedTerminatedPods succeeded failed
UserInfo username uid groups extra
Volume name >VolumeSource
VolumeDevice name devicePath
VolumeMount name readOnly mountPath subPath mountPropagation subPathExpr recursiveReadOnly
VolumeMountStatus name mountPath readOnly recursiveReadOnly volumeStatus
VolumeProjection secret downwardAPI configMap serviceAccountToken clusterTrustBundle podCertificate
VolumeResourceRequirements limits requests
VolumeSource hostPath emptyDir gcePersistentDisk awsElasticBlockStore gitRepo secret nfs iscsi glusterfs
    persistentVolumeClaim rbd flexVolume cinder cephfs flocker downwardAPI fc azureFile configMap vsphereVolume
    quobyte azureDisk photonPersistentDisk portworxVolume scaleIO projected storageos csi ephemeral image
VolumeStatus image
VsphereVirtualDiskVolumeSource volumePath fsType storagePolicyName storagePolicyID
WeightedPodAffinityTerm weight podAffinityTerm
WindowsSecurityContextOptions gmsaCredentialSpecName gmsaCredentialSpec runAsUserName hostProcess
"""
