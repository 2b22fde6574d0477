"""Controllers of workloads: deployments, replica sets, stateful sets, daemon sets, jobs and cron jobs."""
