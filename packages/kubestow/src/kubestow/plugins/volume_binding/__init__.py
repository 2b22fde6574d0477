"""VolumeBinding: finds, reserves and binds the volumes of a pod's claims (semantics 8.12)."""
