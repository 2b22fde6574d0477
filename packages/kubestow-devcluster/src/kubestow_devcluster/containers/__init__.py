"""What the commands of simulated containers do, without a process: shell scripts of a few commands."""
