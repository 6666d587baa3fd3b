"""What the stages cost, measured by the profiler."""

from __future__ import annotations

from typing import Any

from replan_client.torch.demo.child import Child
from replan_client.torch.demo.scenario import Scenario
from replan_client.torch.demo.task import make_training
from replan_client.torch.profiler import profile_stages

_REPEATS = 7


def measure_costs(_child: Child, scenario: Scenario) -> list[dict[str, Any]]:
    """Entries of a job file's ``stages``."""
    profiles = profile_stages(make_training(scenario), scenario.num_slots, repeats=_REPEATS, warm_up=2)
    return [dict(profile.to_document()) for profile in profiles]
