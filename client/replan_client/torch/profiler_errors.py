"""Errors of the profiler and of emulated compute.

::

    ClientError               (code)
    +-- ProfileError          profile_failed     a model, link or job file that the profiler cannot work with
    +-- EmulationError        emulation_failed   an emulated run that cannot be read, or a process of it that failed
"""

from __future__ import annotations

from replan_client.errors import ClientError


class ProfileError(ClientError):
    """A model, link or job file that the profiler cannot work with."""

    code = "profile_failed"


class EmulationError(ClientError):
    """An emulated run that cannot be read, or a process of it that failed."""

    code = "emulation_failed"
