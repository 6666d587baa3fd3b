"""Annealing on order strings: one move shifts one operation of one worker by a few places."""
