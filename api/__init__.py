"""The HTTP service: plans and programs for training workers."""
