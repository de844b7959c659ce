"""The trainer: training loop, seats, tests, reports, saving and callbacks. It imports environments and policies."""
