"""How simulated pods and nodes behave: annotations, and the rules of a file (``--stages``).

annotations      the annotations that control the simulation
pod_behaviour    how the containers of a pod start, run, stop and fail, and rules for it
resource_usage   rules for the CPU and memory that pods and nodes use, constant or moving
kwok_stages      KWOK Stages: changes of a pod that become due in a certain state
stages_file      reads a file of rules, and KWOK Stages, into one :class:`Stages`
"""
