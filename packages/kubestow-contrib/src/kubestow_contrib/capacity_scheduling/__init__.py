"""CapacityScheduling of scheduler-plugins: elastic quotas of namespaces, which borrow from each other.

elastic_quotas    ElasticQuota objects, what the pods of their namespaces use, and the rules that compare both
borrowed          the pods that give back what their namespaces borrow
plugin            the plugin: admission by quota, and preemption within and across namespaces
"""
