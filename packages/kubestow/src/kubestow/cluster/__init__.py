"""The scheduler cache: nodes and pods as columns, counters over topology domains, volumes and devices in use."""
