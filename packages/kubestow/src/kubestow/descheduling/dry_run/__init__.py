"""Descheduling offline: the dry run that reschedules evicted pods, its report, and the replay of recorded loops."""
