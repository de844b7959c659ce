"""When learners update, from which rows, and in which thread."""
