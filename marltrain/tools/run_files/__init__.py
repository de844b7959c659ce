"""Files of runs: TOML that `marltrain train` reads and writes, and config.json of a run."""
