"""The commands that run in a cluster (scheduler, extender, descheduler), and ``config`` for their configuration."""
