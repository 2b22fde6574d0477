"""Gang scheduling: GangScheduling, TopologyPlacementGenerator and PodGroupPodsCount (semantics 8.18, 8.19)."""
