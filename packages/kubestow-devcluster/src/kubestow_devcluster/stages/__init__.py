"""Stages: rules for how simulated pods start, run, fail and use resources, read from a file (`--stages`).

stages_file       reads a file of rules, and KWOK Stages, into one :class:`Stages`
selectors         which pods and nodes a rule applies to
pod_behaviour     rules for how the containers of pods start, run, stop and fail
resource_usage    rules for the CPU and memory that pods and nodes use, constant or moving
kwok_stages       KWOK Stages: changes of a pod that become due in a certain state
resource_metrics  NodeMetrics and PodMetrics from the usage of running containers
"""

from kubestow_devcluster.stages.stages_file import NO_STAGES, Stages, read_stages

__all__ = ["NO_STAGES", "Stages", "read_stages"]
