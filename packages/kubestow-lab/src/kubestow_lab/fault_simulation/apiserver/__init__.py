"""The simulated API server, and the clients through which scheduler processes reach it."""
