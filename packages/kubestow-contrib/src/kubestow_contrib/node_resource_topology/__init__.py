"""NodeResourceTopologyMatch of scheduler-plugins: nodes whose NUMA zones can run a pod as their kubelet would.

node_resource_topology_match   the plugin, and the zones of victims of preemption
args                           its arguments
zones                          NodeResourceTopology objects, and what is available in the zones of all nodes, as arrays
alignment                      the filter: containers or pods in a single zone
scoring                        scores by what is available in single zones, or by the number of zones and their distance
over_reserve                   what pods request, taken from every zone until a report accounts for them
agent_reports                  the fingerprint of a node's pods and the zones of its containers, as reported
"""
