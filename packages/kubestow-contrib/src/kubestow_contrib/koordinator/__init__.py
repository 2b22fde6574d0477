"""The load-aware plugin of koordinator.

load_aware_scheduling   LoadAwareScheduling: limits and balances the usage that koordlets report
args                    its arguments
node_metric             NodeMetric objects, and what is read from them
estimation              what pods are estimated to use, and their priority classes
node_loads              usage and estimates of all nodes, as columns
"""
