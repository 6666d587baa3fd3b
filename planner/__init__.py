"""The domain: topology, costs, problems, schedules, bounds, validation, replay, lowering and plans.

Nothing in this package solves, serves or trains; it imports no solver, no web framework and no torch.
"""
