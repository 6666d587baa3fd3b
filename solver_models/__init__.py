"""Solvers of a :class:`planner.problem.Problem`: list scheduling, annealing, CP-SAT, MILP and the portfolio."""
