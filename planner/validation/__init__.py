"""Validation of any schedule, ours or foreign: every violation by worker, operation and time.

=====================  ==============================================================================================
code                   meaning
=====================  ==============================================================================================
``wrong_grid``         the schedule is for other numbers of pipelines or slots; nothing else is checked
``unknown_operation``  a stage, pipeline or microbatch that the problem does not have
``missing_operation``  a microbatch lacks its F, or its I and W or B, at a stage
``duplicate_operation``  an operation stands more than once
``mixed_backward``     a microbatch has B and also I or W at the same stage
``unsplittable``       I or W of a stage that can only run B
``wrong_slot``         an operation on a worker of a slot that does not hold its stage
``worker_changed``     I, W or B on another worker than its F
``dead_worker``        an operation on a worker that is down
``time_range``         a planned time so far from 0 that sums would leave 64 bits; other times are not checked
``wrong_duration``     planned end minus planned start is not what the operation takes on its worker
``overlap``            an operation starts before the one ahead of it on its worker has ended
``precedence``         an operation starts before its input exists and has been transferred
``link_order``         its own input would be there, but an earlier message on the same link would still be under way
``memory``             a worker's order holds more bytes than its slot's ``capacity_bytes``
``cycle``              operations without length, planned for one moment, wait for each other: the order cannot run
``period``             a slot (``staggered``) or the whole iteration (``global``) and its sync take longer than the period
``truncated``          more violations exist than are listed; the message says how many
=====================  ==============================================================================================

The codes are stable.
"""

from planner.validation.checks import require_sound, require_valid, validate
from planner.validation.findings import Violation

__all__ = ["Violation", "require_sound", "require_valid", "validate"]
