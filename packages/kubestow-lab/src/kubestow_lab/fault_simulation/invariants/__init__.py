"""What must hold of every decision and binding, and of all processes once the faults have ended."""
