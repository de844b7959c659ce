"""Acting and gradients in compiled code, for small networks: the equivalent of `Algorithm.act` and of the losses."""
