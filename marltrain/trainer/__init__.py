"""The trainer: the loop, who sits where, what is measured, and the hooks. It knows environments and policies."""
