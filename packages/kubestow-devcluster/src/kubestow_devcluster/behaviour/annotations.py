"""The annotations that control the simulation: how a pod runs, whether a kubelet runs, how long provisioning takes.

Durations are Go durations (``30s``, ``1h30m``). Kubelets read the annotations of pods and nodes, the provisioner reads
those of storage classes; the job controller sets :data:`DURATION` on pods whose template does not.
"""

from __future__ import annotations

#: The prefix of every annotation in this module.
PREFIX = "kubestow.dev/"

# Pods

#: The time from the binding to the start of the first container.
START = PREFIX + "start"
#: The time from a container's start until it is ready; ``never``: it does not become ready.
READY = PREFIX + "ready"
#: How long each container runs before it exits by itself.
DURATION = PREFIX + "duration"
#: The exit code of each run, comma-separated; the last one repeats. With exit codes the restart policy applies.
EXIT_CODE = PREFIX + "exit-code"
#: :data:`DURATION` and :data:`EXIT_CODE` of each init container.
INIT_DURATION = PREFIX + "init-duration"
INIT_EXIT_CODE = PREFIX + "init-exit-code"
#: Why the images of the pod cannot be pulled. The pod starts when the annotation is removed.
PULL_ERROR = PREFIX + "pull-error"
#: How long the containers take to stop when the pod is deleted; capped by the grace period.
SHUTDOWN = PREFIX + "shutdown"

# Nodes

#: The state of the node's kubelet, :data:`STOPPED` or :data:`SHUT_DOWN`. Without the annotation the kubelet runs.
KUBELET = PREFIX + "kubelet"
#: The kubelet stopped: no heartbeats and no pod status updates.
STOPPED = "stopped"
#: The kubelet shut down gracefully: it terminated its pods, then stopped.
SHUT_DOWN = "shutdown"

# Storage classes

#: How long provisioning a volume takes; ``never``: volumes are not provisioned.
PROVISIONING = PREFIX + "provisioning"
