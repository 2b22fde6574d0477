"""SySched of scheduler-plugins: pods that use the same system calls share nodes.

plugin      SySched
profiles    SeccompProfile objects, and the system calls that pods may use
pod_sets    which sets of system calls the pods on each node may use
"""
