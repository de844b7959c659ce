"""Updates that compiled code makes between the batch steps of a native game."""
