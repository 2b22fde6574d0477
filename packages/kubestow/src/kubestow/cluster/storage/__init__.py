"""Storage: volumes in use, attachments, available volumes, storage capacities and the state of CSI drivers."""
