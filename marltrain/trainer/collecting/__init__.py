"""Collectors: how batch steps are made."""
