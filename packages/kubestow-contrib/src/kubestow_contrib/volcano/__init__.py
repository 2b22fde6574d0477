"""Queues, fair shares and jobs as Volcano and kube-batch schedule them.

configuration      volcano-scheduler.conf: actions, tiers of plugins and their arguments
conversion         from there to a profile of a KubeSchedulerConfiguration
queues             Queue objects and their mistakes
fair_share         water-filling of deserved amounts, and dominant shares
division           the division of the cluster among queues
accounts           jobs and queues with what their pods request and use
job_order          the order of queues and of their jobs, asked for at every pop
enqueueing         which jobs are admitted (action enqueue)
victims            which pods may be evicted for another (actions preempt and reclaim)
plugin             the plugin Volcano, which connects them with the scheduler
binpack            the plugin VolcanoBinpack, a score
"""
