"""Errors of traces and simulations, part of the tree in :mod:`planner.errors`.

::

    InputError
    +-- TraceError               trace_invalid    a trace that cannot be read, or does not fit the job
"""

from __future__ import annotations

from planner.errors import InputError


class TraceError(InputError):
    """A trace cannot be read, contradicts itself, or names what the job does not have."""

    code = "trace_invalid"
