"""Rules for how simulated pods run and what they use."""
