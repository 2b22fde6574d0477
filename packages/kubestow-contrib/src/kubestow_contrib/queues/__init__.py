"""Job queues: hierarchical queues with fair shares that remember, reservations, backfill, and whole-job preemption.

configuration      the args of the plugin: queues, flavors of nodes, fair share, backfill, preemption
queues_file        queues in a file of their own, also as objects of Volcano, kube-batch and CapacityScheduling
fair_share         usage that decays, and the division of a total among queues by priority and weight
availability       what is free on nodes, and below limits, over time; the earliest start of a job, and its nodes
batch_jobs         Jobs of Kubernetes: how long they may run
jobs               jobs, their pods, and how long they run
planning           one round of decisions: order, starts, reservations, backfill, victims
job_queues         the plugin JobQueues, which connects them with the scheduler
forecast           when a job will start, why not yet, and what would make it start now
history            what queues and jobs have used, over time
queue_report       queues, waits, reservations and nodes over time as parts of a report
queue_charts       the charts of that
"""
