"""Controllers of PersistentVolumes and PersistentVolumeClaims: binding, provisioning, protection and reclaiming."""
