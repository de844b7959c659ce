"""What a run tells: tables, progress, TensorBoard, plots, faults and the run's config.json."""
