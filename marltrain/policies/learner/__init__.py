"""A learner: K agents of one algorithm, computed together. How they act, and one gradient step."""
