"""What a run keeps: its folder, checkpoints, and how another call resumes or continues it."""
