"""What is trained, and that its parts are the same wherever they are made."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from replan_client.errors import ArgumentError
from replan_client.torch.demo.costs import measure_costs
from replan_client.torch.demo.model import CONTEXT, WIDTH, build_stage
from replan_client.torch.demo.scenario import full_scenario, job_document, quick_scenario
from replan_client.torch.demo.task import make_training
from replan_client.torch.demo.text import ALPHABET, write_text
from replan_client.torch.spec import TensorSpec
from replan_client.torch.splitting import why_not_splittable

from planner.formats.job_file import job_from_document


@pytest.mark.parametrize("num_iterations", [10, 16, 1000])
def test_everything_has_room(num_iterations: int) -> None:
    """Kills come one after the other and not at once, the return behind them, and two iterations at least behind that."""
    one = full_scenario(num_iterations=num_iterations)
    assert one.comes_back is not None
    moments = [0, *(kill.iteration for kill in one.kills), one.comes_back.iteration, num_iterations - 1]
    assert all(later - earlier >= 2 for earlier, later in pairwise(moments))
    # Both in one slot, of which one worker is left; the first comes back.
    assert {kill.worker[-1] for kill in one.kills} == {"2"}
    assert one.comes_back.worker == one.kills[0].worker


def test_too_few_iterations_are_refused() -> None:
    """Of both kinds."""
    with pytest.raises(ArgumentError, match="expected at least 10"):
        full_scenario(num_iterations=9)
    with pytest.raises(ArgumentError, match="expected at least 4"):
        quick_scenario(num_iterations=3)


def test_texts_follow_from_their_place() -> None:
    """Of the right length, in the alphabet, all different."""
    found = {write_text(0, i, k, j, length=66) for i in range(3) for k in range(3) for j in range(3)}
    assert len(found) == 27
    assert {len(text) for text in found} == {66}
    assert set("".join(found)) <= set(ALPHABET)
    assert write_text(0, 1, 2, 0, length=66) in found
    assert write_text(1, 1, 2, 0, length=66) not in found


@pytest.mark.parametrize("stage", [1, 3])
def test_backwards_can_be_split(stage: int) -> None:
    """Of all stages but the first, whose I does nothing anyway."""
    module = build_stage(stage, 4, seed=0, dtype=torch.float64)
    spec = TensorSpec(shape=(2, CONTEXT, WIDTH), dtype=torch.float64)
    assert why_not_splittable(module, spec, device=torch.device("cpu")) is None


def test_building_a_stage_is_repeatable_and_draws_nothing() -> None:
    """Others' random numbers stay as they are."""
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first, second = (build_stage(0, 4, seed=3, dtype=torch.float32).state_dict() for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_labels_are_the_next_letters() -> None:
    """Shifted by one."""
    inputs, labels = make_training(quick_scenario()).data(2, 1, 0)
    assert inputs.shape == labels.shape == (2, CONTEXT)
    assert torch.equal(inputs[:, 1:], labels[:, :-1])


def test_the_job_is_one_with_measured_costs() -> None:
    """As the planner reads it."""
    scenario = quick_scenario()
    stages = measure_costs(None, scenario)  # type: ignore[arg-type] # says nothing meanwhile
    job = job_from_document(job_document(scenario, stages))
    assert (job.num_pipelines, job.num_slots, job.microbatches) == (2, 2, (3, 3))
    assert all(stage.costs.forward_ns > 0 and stage.costs.activation_bytes > 0 for stage in job.stages)
