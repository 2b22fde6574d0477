"""Volumes in scheduling: claims, attachments, capacities and CSI state."""
