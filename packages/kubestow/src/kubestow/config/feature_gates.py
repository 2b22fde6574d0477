"""The feature gates that affect scheduling: stage, default and dependencies of each (semantics 3).

:class:`FeatureGates` is an immutable value: the defaults of Kubernetes 1.36 with overrides. Invalid overrides (an
unknown gate, a locked gate, a gate without its dependencies) are rejected on construction.

The gates of Kubernetes 1.36 that mean nothing to scheduling, of every component, are accepted and have no effect, so
that one ``--feature-gates`` value works for a whole cluster. kube-scheduler accepts the gates that are linked into it.
A gate that is locked cannot be set to the other value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from kubestow.errors import InputError

_SWITCHES = """
    AllowDNSOnlyNodeCSR AllowInsecureKubeletCertificateSigningRequests AllowParsingUserUIDFromCertAuth
    AllowServiceExternalIPs AllowUnsafeMalformedObjectDeletion APIResponseCompression APIServerIdentity
    APIServingWithRoutine AtomicFIFO AuthorizePodWebsocketUpgradeCreatePermission CBORServingAndStorage
    ChangeContainerStatusOnKubeletRestart ClientsAllowCARotation ClientsAllowCBOR ClientsAllowTLSCacheGC
    ClientsPreferCBOR CloudControllerManagerWatchBasedRoutesReconciliation CloudControllerManagerWebhook
    ClusterTrustBundle ClusterTrustBundleProjection ConcurrentWatchObjectDecode ConstrainedImpersonation
    ContainerCheckpoint ContainerRestartRules ContainerStopSignals ContextualLogging
    ControllerManagerReleaseLeaderElectionLockOnExit CPUManagerPolicyAlphaOptions CPUManagerPolicyBetaOptions
    CRDObservedGenerationTracking CRIListStreaming CrossNamespaceVolumeDataSource CSIVolumeHealth
    CustomCPUCFSQuotaPeriod DeclarativeValidationBeta DeclarativeValidationTakeover
    DeploymentReplicaSetTerminatingReplicas DetectCacheInconsistency DisableCPUQuotaWithExclusiveCPUs
    DRAResourceClaimGranularStatusAuthorization DRAResourcePoolStatus EnvFiles EventedPLEG ExtendWebSocketsToKubelet
    GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority HostnameOverride HPAConfigurableTolerance
    HPAScaleToZero ImageVolumeWithDigest InformerResourceVersion InOrderInformersBatchProcess
    InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScalingExclusiveMemory
    InPlacePodVerticalScalingInitContainers KMSv1 KubeletCrashLoopBackOffMax KubeletEnsureSecretPulledImages
    KubeletInUserNamespace KubeletPodResourcesListUseActivePods KubeletRegistrationGetOnExistsOnly
    KubeletSeparateDiskGC KubeletServiceAccountTokenForCredentialProviders ListFromCacheSnapshot
    LocalStorageCapacityIsolationFSQuotaMonitoring LoggingAlphaOptions LoggingBetaOptions
    ManifestBasedAdmissionControlConfig MaxUnavailableStatefulSet MemoryQoS MutablePodResourcesForSuspendedJobs
    MutablePVNodeAffinity MutableSchedulingDirectivesForSuspendedJobs MutatingAdmissionPolicy OpenAPIEnums
    PersistentVolumeClaimUnusedSinceTime PLEGOnDemandRelist PodAndContainerStatsFromCRI PodCertificateRequest
    PodDeletionCost PodLevelResourceManagers PodLogsQuerySplitStreams PodReadyToStartContainersCondition PodsAPI
    PodTopologyLabelsAdmission PortForwardWebsockets PreventStaticPodAPIReferences QOSReserved
    ReduceDefaultCrashLoopBackOffDecay RelaxedServiceNameValidation ReloadKubeletClientCAFile
    ReloadKubeletServerCertificateFile RemoteRequestHeaderUID ResourceHealthStatus ResourceHealthStatusMessage
    RestartAllContainersOnContainerExits RotateKubeletServerCertificate RuntimeClassInImageCriApi SELinuxMount
    ServiceAccountNodeAudienceRestriction ServiceCIDRStatusFieldWiping ShardedListAndWatch SizeBasedListCostEstimate
    StaleControllerConsistencyDaemonSet StaleControllerConsistencyJob StaleControllerConsistencyReplicaSet
    StaleControllerConsistencyStatefulSet StatefulSetSemanticRevisionComparison StorageNamespaceIndex
    StorageVersionAPI StorageVersionHash StorageVersionMigrator StrictIPCIDRValidation
    StructuredAuthenticationConfigurationEgressSelector StructuredAuthenticationConfigurationJWKSMetrics
    TokenRequestServiceAccountUIDValidation TopologyManagerPolicyAlphaOptions TopologyManagerPolicyBetaOptions
    TranslateStreamCloseWebsocketRequests UnauthenticatedHTTP2DOSMitigation UnknownVersionInteroperabilityProxy
    UnlockWhileProcessingFIFO UserNamespacesHostNetworkSupport WatchCacheInitializationPostStartHook WatchList
    WatchListClient WindowsCPUAndMemoryAffinity WindowsGracefulNodeShutdown WindowsHostNetwork WorkloadWithJob
"""

_LOCKED_ON = """
    AggregatedDiscoveryRemoveBetaType AnonymousAuthConfigurableEndpoints AnyVolumeDataSource APIServerTracing
    AuthorizeNodeWithSelectors AuthorizeWithSelectors BtreeWatchCache ConsistentListFromCache
    CPUManagerPolicyOptions CRDValidationRatcheting CSIServiceAccountTokenSecrets CustomResourceFieldSelectors
    DeclarativeValidation DisableAllocatorDualWrite DisableNodeKubeProxyVersion ExecProbeTimeout
    ExternalServiceAccountTokenSigner ImageMaximumGCAge InOrderInformers JobBackoffLimitPerIndex JobManagedBy
    JobPodReplacementPolicy JobSuccessPolicy KubeletCgroupDriverFromCRI KubeletFineGrainedAuthz
    KubeletPodResourcesDynamicResources KubeletPodResourcesGet KubeletPSI KubeletTracing LogarithmicScaleDown
    MultiCIDRServiceAllocator MutableCSINodeAllocatableCount NFTablesProxyMode NodeLogQuery NodeSwap
    OrderedNamespaceDeletion PodLifecycleSleepAction PodLifecycleSleepActionAllowZero PreferSameTrafficDistribution
    ProcMountType RecoverVolumeExpansionFailure RecursiveReadOnlyMounts RelaxedDNSSearchValidation
    RelaxedEnvironmentVariableValidation ResilientWatchCacheInitialization RetryGenerateName SELinuxChangePolicy
    SELinuxMountReadWriteOncePod SeparateTaintEvictionController ServiceAccountTokenJTI
    ServiceAccountTokenNodeBinding ServiceAccountTokenNodeBindingValidation ServiceAccountTokenPodNodeInfo
    StreamingCollectionEncodingToJSON StreamingCollectionEncodingToProtobuf StructuredAuthenticationConfiguration
    SupplementalGroupsPolicy TopologyManagerPolicyOptions UserNamespacesSupport WinDSR WinOverlay
"""

_LOCKED_OFF = """
    AllowOverwriteTerminationGracePeriodSeconds GitRepoVolumeDriver SeparateCacheWatchRPC
"""

OTHER_COMPONENT_FEATURES: Mapping[str, bool | None] = MappingProxyType(
    {
        **dict.fromkeys(_SWITCHES.split()),
        **dict.fromkeys(_LOCKED_ON.split(), True),
        **dict.fromkeys(_LOCKED_OFF.split(), False),
    }
)
"""The value that each gate is locked to; None if it can be set."""


_FLAG = "--feature-gates"
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


class Stage(StrEnum):
    """The maturity of a feature (``prerelease`` in component-base)."""

    ALPHA = "ALPHA"
    BETA = "BETA"
    GA = "GA"


@dataclass(frozen=True, slots=True)
class FeatureSpec:
    """A gate: its stage, its default, whether it is locked to the default, and the gates it depends on."""

    stage: Stage
    default: bool
    lock_to_default: bool = False
    dependencies: tuple[str, ...] = ()


def _alpha(*dependencies: str) -> FeatureSpec:
    return FeatureSpec(Stage.ALPHA, default=False, dependencies=dependencies)


def _beta(*dependencies: str, default: bool = True) -> FeatureSpec:
    return FeatureSpec(Stage.BETA, default=default, dependencies=dependencies)


def _ga(*dependencies: str, lock_to_default: bool = True) -> FeatureSpec:
    return FeatureSpec(Stage.GA, default=True, lock_to_default=lock_to_default, dependencies=dependencies)


_DRA = "DynamicResourceAllocation"

FEATURE_SPECS: Mapping[str, FeatureSpec] = MappingProxyType(
    {
        "ClearingNominatedNodeNameAfterBinding": _beta(),
        "ComponentFlagz": _beta(),
        "ComponentStatusz": _beta(),
        "CoordinatedLeaderElection": _beta(default=False),
        "DRAAdminAccess": _ga(_DRA),
        "DRAConsumableCapacity": _beta(_DRA),
        "DRADeviceBindingConditions": _beta(_DRA, "DRAResourceClaimDeviceStatus"),
        "DRADeviceTaintRules": _beta(_DRA, "DRADeviceTaints", default=False),
        "DRADeviceTaints": _beta(_DRA),
        "DRAExtendedResource": _beta(_DRA),
        "DRAListTypeAttributes": _alpha(_DRA),
        "DRANodeAllocatableResources": _alpha(_DRA),
        "DRAPartitionableDevices": _beta(_DRA),
        "DRAPrioritizedList": _ga(_DRA, lock_to_default=False),
        "DRAResourceClaimDeviceStatus": _beta(_DRA),
        "DRASchedulerFilterTimeout": _beta(_DRA),
        "DRAWorkloadResourceClaims": _alpha(_DRA, "GenericWorkload"),
        "DynamicResourceAllocation": _ga(),
        "GangScheduling": _alpha("GenericWorkload"),
        "GenericWorkload": _alpha(),
        "ImageVolume": _ga(),
        "InPlacePodLevelResourcesVerticalScaling": _beta(
            "InPlacePodVerticalScaling", "PodLevelResources", "NodeDeclaredFeatures"
        ),
        "InPlacePodVerticalScaling": _ga(),
        "MatchLabelKeysInPodAffinity": _ga(),
        "MatchLabelKeysInPodTopologySpread": _beta(),
        "MatchLabelKeysInPodTopologySpreadSelectorMerge": _beta("MatchLabelKeysInPodTopologySpread"),
        "NativeHistograms": _alpha(),
        "NodeDeclaredFeatures": _beta(),
        "NodeInclusionPolicyInPodTopologySpread": _ga(),
        "NominatedNodeNameForExpectation": _beta(),
        "OpportunisticBatching": _beta(),
        "PodLevelResources": _beta(),
        "PodObservedGenerationTracking": _ga(),
        "PodSchedulingReadiness": _ga(),
        "SchedulerAsyncAPICalls": _beta(default=False),
        "SchedulerAsyncPreemption": _beta(),
        "SchedulerPopFromBackoffQ": _beta(),
        "SchedulerQueueingHints": _ga(),
        "SidecarContainers": _ga(),
        "StorageCapacityScoring": _alpha(),
        "TaintTolerationComparisonOperators": _alpha(),
        "TopologyAwareWorkloadScheduling": _alpha("GenericWorkload"),
        "VolumeAttributesClass": _ga(),
        "VolumeLimitScaling": _alpha(),
        "WorkloadAwarePreemption": _alpha("GangScheduling"),
    }
)
"""Every gate that affects scheduling, by name."""

NOT_IMPLEMENTED = frozenset(
    {
        "CoordinatedLeaderElection",
        "DRADeviceTaintRules",
        "DRAListTypeAttributes",
        "DRANodeAllocatableResources",
        "DRAWorkloadResourceClaims",
        "NativeHistograms",
        "OpportunisticBatching",
    }
)
"""The gates of scheduling that have no effect, because what they enable is not implemented."""

_STAGE_GATES = MappingProxyType({"AllAlpha": Stage.ALPHA, "AllBeta": Stage.BETA})


class FeatureGates:
    """The state of every gate: the defaults with ``overrides``.

    The overrides "AllAlpha" and "AllBeta" apply to every gate of that stage without an override of its own. Gates of
    other components are accepted and ignored. Raises InputError, naming ``subject``, for invalid overrides.
    """

    __slots__ = ("_enabled",)

    def __init__(self, overrides: Mapping[str, bool] | None = None, *, subject: str = _FLAG) -> None:
        overrides = overrides or {}
        _raise_if(subject, _override_errors(overrides))
        self._enabled = frozenset(name for name, spec in FEATURE_SPECS.items() if _effective(name, spec, overrides))
        _raise_if(subject, self._dependency_errors())

    @classmethod
    def parse(cls, text: str, *, subject: str = _FLAG) -> FeatureGates:
        """Parse the value of ``--feature-gates``: "GangScheduling=true,GenericWorkload=true". Raises InputError."""
        return cls(dict(_parse_assignment(part, subject) for part in text.split(",") if part), subject=subject)

    def enabled(self, name: str) -> bool:
        """Whether a gate is enabled. Raises KeyError for an unknown gate."""
        if name not in FEATURE_SPECS:
            raise KeyError(name)
        return name in self._enabled

    @property
    def without_effect(self) -> tuple[str, ...]:
        """The gates that were enabled although what they enable is not implemented, by name."""
        return tuple(sorted(n for n in self._enabled & NOT_IMPLEMENTED if not FEATURE_SPECS[n].default))

    def __iter__(self) -> Iterator[tuple[str, bool]]:
        """The (name, enabled) pairs of all gates."""
        return ((name, name in self._enabled) for name in FEATURE_SPECS)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FeatureGates) and self._enabled == other._enabled

    def __hash__(self) -> int:
        return hash(self._enabled)

    def __repr__(self) -> str:
        differing = {
            name: name in self._enabled for name, f in FEATURE_SPECS.items() if f.default != (name in self._enabled)
        }
        return f"FeatureGates({differing})"

    def _dependency_errors(self) -> list[str]:
        unmet = {
            name: [n for n in FEATURE_SPECS[name].dependencies if n not in self._enabled]
            for name in sorted(self._enabled)
        }
        return [
            f"{name} is enabled, but depends on features that are disabled: [{' '.join(missing)}]"
            for name, missing in unmet.items()
            if missing
        ]


def _effective(name: str, feature: FeatureSpec, overrides: Mapping[str, bool]) -> bool:
    if name in overrides:
        return overrides[name]
    for group, stage in _STAGE_GATES.items():
        if feature.stage is stage and group in overrides:
            return overrides[group]
    return feature.default


def _override_errors(overrides: Mapping[str, bool]) -> list[str]:
    known = {*FEATURE_SPECS, *_STAGE_GATES, *OTHER_COMPONENT_FEATURES}
    unknown = [f"unrecognized feature gate: {name}" for name in overrides if name not in known]
    if unknown:
        return unknown
    return [
        f"cannot set feature gate {name} to {_go_bool(value)}, feature is locked to {_go_bool(not value)}"
        for name, value in overrides.items()
        if _locked_value(name) is (not value)
    ]


def _locked_value(name: str) -> bool | None:
    """The value that a gate is locked to, or None."""
    if name in FEATURE_SPECS:
        return FEATURE_SPECS[name].default if FEATURE_SPECS[name].lock_to_default else None
    return OTHER_COMPONENT_FEATURES.get(name)


def _parse_assignment(part: str, subject: str) -> tuple[str, bool]:
    name, equals, value = (piece.strip() for piece in part.partition("="))
    if not equals:
        raise InputError(subject, f"missing bool value for {name}")
    if value not in _TRUE | _FALSE:
        raise InputError(subject, f"invalid value of {name}={value}, expected true or false")
    return name, value in _TRUE


def _raise_if(subject: str, errors: list[str]) -> None:
    if errors:
        raise InputError(subject, "; ".join(errors))


def _go_bool(value: bool) -> str:
    return "true" if value else "false"
