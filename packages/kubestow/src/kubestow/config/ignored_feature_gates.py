"""The feature gates of Kubernetes 1.36 that mean nothing to scheduling, of every component.

They are accepted and have no effect, so that one ``--feature-gates`` value works for a whole cluster. kube-scheduler
accepts the gates that are linked into it. A gate that is locked cannot be set to the other value.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["OTHER_COMPONENT_FEATURES"]

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
