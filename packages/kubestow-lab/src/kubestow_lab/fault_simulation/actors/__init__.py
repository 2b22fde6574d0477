"""Everything in the simulated cluster besides schedulers: users, kubelets, controllers and drivers."""
