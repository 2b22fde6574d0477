"""NodeResourceTopologyMatch of scheduler-plugins: nodes whose NUMA zones can run a pod as their kubelet would.

plugin        NodeResourceTopologyMatch
args          its arguments
topologies    NodeResourceTopology objects, and what is read from them
zones         what is available in the zones of all nodes, as arrays
alignment     the filter: containers or pods in a single zone
scoring       scores by what is available in single zones
least_zones   scores by the number of zones that are needed, and their distance
pod_requests  what pods request, as the kubelet's topology manager counts it
"""
