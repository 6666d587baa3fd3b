"""List scheduling that decides who runs what on the way: the workers of a slot are one pool."""

from solver_models.pools.search import NAME, PoolRun

__all__ = ["NAME", "PoolRun"]
