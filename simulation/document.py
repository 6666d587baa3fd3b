"""Outcomes as plain JSON values."""

from __future__ import annotations

from typing import Any

from simulation.outcome import Outcome
from simulation.policies.registry import POLICIES


def outcome_document(outcome: Outcome, price_per_gpu_hour: float | None = None) -> dict[str, Any]:
    """One outcome: times in seconds, rates in samples a second, shares of 1; ``cost_per_million`` in the price's unit."""
    per_million = outcome.gpu_hours_per_million
    return {
        "policy": outcome.policy,
        "summary": POLICIES[outcome.policy].summary,
        "keeps_batch": outcome.keeps_batch,
        "is_exact": outcome.is_exact,
        "goodput": outcome.goodput,
        "share_of_fault_free": outcome.share,
        "samples": outcome.samples,
        "lost_s": {str(cause): seconds for cause, seconds in outcome.lost_s.items()},
        "losses": outcome.losses,
        "rollbacks": outcome.rollbacks,
        "checkpoint_interval_s": outcome.checkpoint_interval_s,
        "gpu_hours": outcome.gpu_hours,
        "gpu_hours_per_million": per_million,
        "cost_per_million": None
        if per_million is None or price_per_gpu_hour is None
        else per_million * price_per_gpu_hour,
    }
