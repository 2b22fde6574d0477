"""Queues, fair shares and jobs as Volcano and kube-batch schedule them.

configuration      volcano-scheduler.conf: actions, tiers of plugins and their arguments
conversion         from there to a profile of a KubeSchedulerConfiguration
pod_groups         PodGroup objects, and how a pod names one
kube_batch         the same objects in the API of kube-batch
queues             Queue objects and their mistakes, and the division of the cluster among queues by fair shares
accounts           jobs and queues with what their pods request and use
jobs               the order of queues and of their jobs at every pop, and which are admitted (action enqueue)
phases             the phases of pod groups
victims            which pods may be evicted for another (actions preempt and reclaim)
volcano            the plugin Volcano, which connects them with the scheduler
job_objects        the PodGroup and the pods of a Job, for offline commands
binpack            the plugin VolcanoBinpack, a score
"""
