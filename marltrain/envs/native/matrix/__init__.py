"""Games that are tables of payoffs, as native games."""
