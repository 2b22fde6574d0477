"""The network-aware plugins of scheduler-plugins: dependencies between the workloads of an application.

custom_resources     AppGroup and NetworkTopology objects
topological_sort     TopologicalSort: orders the pods of an application by its topology
network_overhead     NetworkOverhead: keeps pods close to those that they depend on
"""
