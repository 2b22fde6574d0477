"""The strategies of workload controllers: kinds with a pod template."""
