"""What the demonstration raises.

::

    ClientError
    +-- DemoError                  (code)
        +-- DemoFailedError        demo_failed        a process ended, or a wait took too long
        +-- TrainingDiffersError   training_differs   other parameters or losses than the undisturbed run's
"""

from __future__ import annotations

from replan_client.errors import ClientError


class DemoError(ClientError):
    """Base of what the demonstration raises."""

    code = "demo_error"


class DemoFailedError(DemoError):
    """Something that the demonstration needs did not work."""

    code = "demo_failed"


class TrainingDiffersError(DemoError):
    """Training through failures gave something else than the undisturbed run."""

    code = "training_differs"
