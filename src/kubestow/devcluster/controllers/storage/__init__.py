"""Controllers of persistent volumes and their claims: binding, provisioning, protection and reclaiming."""
