"""Reports of a run: tables, progress, TensorBoard, plots, faults and config.json."""
