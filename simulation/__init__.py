"""Goodput on traces of failures: what RePlan's plans are worth over days, against other ways to survive failures.

Traces in, one model of each policy, one engine that plays them, one table out. Plans come from :mod:`solver_models`; what other
systems do is modelled from what their authors published (:mod:`simulation.constants`).
"""
