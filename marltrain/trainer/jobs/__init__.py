"""Named runs: an actor of each shows the run to other processes and passes their requests to it."""
