"""Training with runners: Ray actors that hold environments, act in them, and send whole fragments of batch steps."""
