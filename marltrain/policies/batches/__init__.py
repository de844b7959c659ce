"""Arrays that trainer, memory and learners exchange: decisions, batches, running statistics."""
