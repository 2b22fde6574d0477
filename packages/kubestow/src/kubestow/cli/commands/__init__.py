"""The commands of the scheduler, a module each; those of other distributions are entry points."""
