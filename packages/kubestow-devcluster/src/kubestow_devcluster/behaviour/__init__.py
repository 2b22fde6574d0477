"""How simulated pods and nodes behave: annotations, and the rules of a file (``--stages``).

pod_behaviour    how the containers of a pod start, run, stop and fail: annotations, and rules for it
resource_usage   rules for the CPU and memory that pods and nodes use, constant or moving
stages           reads a file of rules and of KWOK Stages, which change a pod some time after it reaches a state
"""
