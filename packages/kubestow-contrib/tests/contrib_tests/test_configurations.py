"""Configurations written for the original schedulers, and what the plugins cost those that do not enable them."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubestow import config
from kubestow.errors import ConfigurationError
from kubestow.framework.profile import build_profile, implements
from kubestow.plugins.registry import find_plugins
from kubestow.testing import PluginHarness

#: As the documentation of scheduler-plugins, crane-scheduler and koordinator has them.
SCHEDULER_PLUGINS = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
profiles:
- schedulerName: trimaran
  plugins:
    score:
      disabled:
      - {name: NodeResourcesBalancedAllocation}
      - {name: NodeResourcesLeastAllocated}
      enabled:
      - {name: TargetLoadPacking}
  pluginConfig:
  - name: TargetLoadPacking
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: TargetLoadPackingArgs
      defaultRequests: {cpu: "2000m"}
      defaultRequestsMultiplier: "2"
      targetUtilization: 70
      metricProvider: {type: KubernetesMetricsServer}
- schedulerName: risk
  plugins:
    multiPoint: {enabled: [{name: LowRiskOverCommitment}]}
    preScore: {enabled: [{name: LowRiskOverCommitment}]}
    score: {enabled: [{name: LoadVariationRiskBalancing}]}
  pluginConfig:
  - name: LoadVariationRiskBalancing
    args:
      safeVarianceMargin: 1
      safeVarianceSensitivity: 2
      metricProvider: {type: Prometheus, address: http://prometheus-k8s.monitoring.svc.cluster.local:9090}
  - name: LowRiskOverCommitment
    args:
      smoothingWindowSize: 5
      riskLimitWeights: {cpu: 0.5, memory: 0.5}
      watcherAddress: http://load-watcher:2020
- schedulerName: topo-aware-scheduler
  plugins:
    multiPoint: {enabled: [{name: NodeResourceTopologyMatch}]}
  pluginConfig:
  - name: NodeResourceTopologyMatch
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourceTopologyMatchArgs
      cacheResyncPeriodSeconds: 3
      cache: {foreignPodsDetect: OnlyExclusiveResources, resyncMethod: Autodetect, informerMode: Dedicated}
      scoringStrategy: {type: LeastNUMANodes, resources: [{name: cpu, weight: 1}]}
- schedulerName: syscalls
  plugins:
    score: {enabled: [{name: SySched}]}
  pluginConfig:
  - name: SySched
    args: {defaultProfileNamespace: default, defaultProfileName: full-seccomp}
- schedulerName: allocatable
  plugins:
    score: {enabled: [{name: NodeResourcesAllocatable}, {name: PodState}], disabled: [{name: "*"}]}
  pluginConfig:
  - name: NodeResourcesAllocatable
    args:
      mode: Least
      resources: [{name: cpu, weight: 1000000}, {name: memory, weight: 1}]
"""
KOORDINATOR = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  plugins:
    filter: {enabled: [{name: LoadAwareScheduling}]}
    score: {enabled: [{name: LoadAwareScheduling, weight: 1}]}
    reserve: {enabled: [{name: LoadAwareScheduling}]}
  pluginConfig:
  - name: LoadAwareScheduling
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: LoadAwareSchedulingArgs
      filterExpiredNodeMetrics: false
      nodeMetricExpirationSeconds: 300
      resourceWeights: {cpu: 1, memory: 1}
      usageThresholds: {cpu: 65, memory: 95}
      prodUsageThresholds: {cpu: 55, memory: 75}
      scoreAccordingProdUsage: true
      estimatedScalingFactors: {cpu: 85, memory: 70}
      aggregated: {usageThresholds: {cpu: 65, memory: 95}, usageAggregationType: p95, scoreAggregationType: p95}
"""
REGISTERED = implements(find_plugins())


@pytest.mark.parametrize("document", [SCHEDULER_PLUGINS, KOORDINATOR], ids=["scheduler-plugins", "koordinator"])
def test_configurations_of_the_originals_run_as_they_are(document: str) -> None:
    registry, harness = find_plugins(), PluginHarness()
    configuration = config.load(yaml.safe_load(document), implements=implements(registry))
    for profile in configuration.profiles:
        build_profile(profile, registry, harness)


def test_a_plugin_is_not_called_where_it_has_nothing_to_do() -> None:
    registry, harness = find_plugins(), PluginHarness()
    configuration = config.load(yaml.safe_load(KOORDINATOR), implements=implements(registry))
    plugins = build_profile(configuration.profiles[0], registry, harness).runtime.plugins
    assert {each.name for each in plugins.filter} >= {"LoadAwareScheduling"}
    for point in (plugins.pre_filter, plugins.reserve):
        assert "LoadAwareScheduling" not in {each.name for each in point}


def test_every_plugin_of_a_neighbour_that_is_not_there_is_named_with_what_comes_nearest() -> None:
    document = yaml.safe_load(KOORDINATOR)
    names = ("Reservation", "LoadAwareScheduling", "DeviceShare", "NodeMetadata", "CapacitySchedule")
    document["profiles"][0]["plugins"] = {"preFilter": {"enabled": [{"name": name} for name in names]}}
    found = [error.message.partition("Plugin ")[2] for error in config.diagnose(document, implements=REGISTERED)]
    assert found == [
        '"Reservation" does not exist: koordinator\'s Reservation is not there; nearest: pods of a low priority that'
        " keep the place, which DefaultPreemption evicts",
        '"DeviceShare" does not exist: koordinator\'s DeviceShare is not there; nearest: DynamicResources for devices'
        " in ResourceClaims, FragmentationGradientDescent for shares of GPUs",
        '"NodeMetadata" does not exist: scheduler-plugins\'s NodeMetadata is not there; nearest: NodeAffinity with'
        " preferred terms about labels",
        '"CapacitySchedule" does not exist: did you mean "CapacityScheduling"?',
    ]
    with pytest.raises(ConfigurationError) as raised:
        config.load(document, implements=REGISTERED)
    assert all(text in str(raised.value) for text in found)


@pytest.mark.parametrize("project", entry_points(group="kubestow.absent_plugins"), ids=lambda each: each.name)
def test_what_comes_nearest_is_there_and_what_is_absent_is_not(project: EntryPoint) -> None:
    known = find_plugins()
    for name, nearest in project.load().items():
        assert name not in known
        assert nearest.startswith(("nothing", "pods", "taints", "status.")) or nearest.split(",")[0].split()[0] in known


@pytest.mark.parametrize("name", sorted(entry_points(group="kubestow.contributed_plugins").names))
def test_every_name_has_a_plugin(name: str) -> None:
    assert find_plugins()[name].name == name


def loaded_modules(enabled: list[str], directory: Path) -> set[str]:
    """The modules of contributed plugins that a process has loaded after reading a configuration."""
    plugins = {"multiPoint": {"enabled": [{"name": name} for name in enabled]}}
    document: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": plugins}],
    }
    (directory / "config.yaml").write_text(yaml.safe_dump(document))
    program = (
        "import sys\n"
        "from kubestow.cli.scheduler_app import SchedulerApp\n"
        f"app = SchedulerApp.create(source={str(directory / 'config.yaml')!r})\n"
        "print(*[name for name in sys.modules if name.startswith('kubestow_contrib')])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(found.stdout.split())


#: What says how a pod names its pod group, without any plugin.
POD_GROUP_MODULES = {
    "kubestow_contrib",
    "kubestow_contrib.coscheduling",
    "kubestow_contrib.shares",
    "kubestow_contrib.volcano",
    "kubestow_contrib.volcano.kube_batch",
    "kubestow_contrib.volcano.pod_groups",
    "kubestow_contrib.volcano.queues",
}


def test_plugins_that_are_not_enabled_are_not_imported(tmp_path: Path) -> None:
    assert loaded_modules([], tmp_path) == POD_GROUP_MODULES
    loaded = loaded_modules(["PodState"], tmp_path)
    assert "kubestow_contrib.pod_state" in loaded
    assert not any("trimaran" in name or "koordinator" in name for name in loaded)
