"""KubeSchedulerConfiguration v1 (kubescheduler.config.k8s.io/v1): types, strict decoding, defaults, validation."""
