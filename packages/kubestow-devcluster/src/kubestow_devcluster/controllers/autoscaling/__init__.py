"""The horizontal pod autoscaler: replicas that follow the usage of pods.

:mod:`replica_calculator` proposes replicas from the usage of pods, :mod:`scaling_history` limits how far and how fast
they follow, and :mod:`horizontal_pod_autoscalers` is the controller.
"""
