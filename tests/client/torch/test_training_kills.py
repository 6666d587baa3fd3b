"""Workers killed at random: training goes on with the right numbers, or says that a state is lost where one is."""

from __future__ import annotations

import sys
from dataclasses import asdict

import pytest

pytest.importorskip("torch", reason="torch, the extra of replan-client, is not installed")

from tests.client.torch.random_kills import train_with_kills
from tests.client.torch.trained_jobs import job_document, trained_job


@pytest.mark.slow
def test_a_few_random_kills(url: str) -> None:
    """Three kills at random moments of a 2 x 3 run."""
    job = trained_job(job_document(2, (3, 2, 1)), num_iterations=20)
    run = train_with_kills(url, "few", job, seed=3, most_kills=3, limit_s=120)
    assert run.num_kills == 3
    assert run.largest_difference is None or run.largest_difference <= 1e-12


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_random_kills(url: str) -> None:
    """A hundred kills, run after run of 60 iterations, every other one with workers that may move; prints what happened."""
    runs = []
    while sum(run.num_kills for run in runs) < 100:
        seed = len(runs)
        # Where workers may move, fewer of them stand in the light slots.
        document = job_document(2, (3, 2, 1), **({"recovery": {}} if seed % 2 else {}))
        job = trained_job(document, num_iterations=60)
        run = train_with_kills(url, f"hundred-{seed}", job, seed=seed, most_kills=100, limit_s=400)
        runs.append(run)
        print(f"run {seed}: {asdict(run)}", file=sys.stderr, flush=True)
        assert run.largest_difference is None or run.largest_difference <= 1e-12
    lost = sum(bool(run.losses) for run in runs)
    print(
        f"{sum(run.num_kills for run in runs)} kills in {len(runs)} runs: {len(runs) - lost} came to the end, largest "
        f"difference {max(run.largest_difference or 0 for run in runs):.1e}; {lost} lost a state that nobody had any more; "
        f"{sum(run.num_returns for run in runs)} workers came back, longest silence "
        f"{max(run.longest_silence_s for run in runs):.1f} s",
        file=sys.stderr,
    )
    assert lost < len(runs)
