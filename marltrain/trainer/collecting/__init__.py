"""Collectors, which make the batch steps of training."""
