"""Controllers that create pods: deployments, replica sets, stateful sets, daemon sets, jobs and cron jobs."""
