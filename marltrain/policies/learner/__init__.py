"""Learners: K agents of one algorithm, computed together; acting, gradient steps and hyperparameters."""
