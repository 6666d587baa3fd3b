"""Relabellings as plain JSON values."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import PlanFileError
from planner.formats.relabelling_file import relabelling_from_document, relabelling_to_document
from planner.normalization import Relabelling, relabelling
from planner.operation import Worker
from tests.problems import tiny_problem


@given(st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_relabellings_survive(rng: random.Random) -> None:
    """Every relabelling comes back through JSON text."""
    problem = tiny_problem(rng)
    found = relabelling(problem)
    document = json.loads(json.dumps(relabelling_to_document(found)))
    shape = {"num_pipelines": problem.num_pipelines, "num_slots": problem.num_slots}
    assert relabelling_from_document(document, dead=problem.dead, **shape) == found


def test_only_what_moves_is_written() -> None:
    """Canonical pipelines 0 and 2 change places, and in slot 1 the workers of 1 and 2 swap parts."""
    found = Relabelling(home=np.array([2, 1, 0]), played_by=np.array([[2, 1, 0], [1, 2, 0]]), dead=frozenset())
    assert relabelling_to_document(found) == {"home": [[0, 2], [2, 0]], "swaps": [[1, 0, 1], [1, 1, 2]]}


@pytest.mark.parametrize(
    "document",
    [
        None,
        {"home": []},
        {"home": [], "swaps": [], "more": 1},
        {"home": [[0, 1]], "swaps": []},
        {"home": [[0, 3], [3, 0]], "swaps": []},
        {"home": [[0, -1]], "swaps": []},
        {"home": [[0, 0]], "swaps": []},
        {"home": [[1, 0], [0, 1]], "swaps": []},
        {"home": [[0, 1, 2]], "swaps": []},
        {"home": [], "swaps": [[2, 0, 1], [2, 1, 0]]},
        {"home": [[0, 2**70]], "swaps": []},
    ],
)
def test_relabellings_are_read_strictly(document: object) -> None:
    """Values of another form, that are not one to one or out of order, are refused."""
    with pytest.raises(PlanFileError):
        relabelling_from_document(document, num_pipelines=3, num_slots=2, dead=frozenset({Worker(0, 0)}))
