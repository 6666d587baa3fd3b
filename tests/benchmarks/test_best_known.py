"""What is stored of the instances, and that a changed generator is noticed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.best_known import PATH, brought_up_to_date, check_instances, read_stored, to_text
from benchmarks.errors import BenchmarkFileError, BenchmarkMismatchError, BenchmarkVersionError
from benchmarks.suites import SUITES, suites_named
from planner.errors import OptionError
from tests.benchmarks.rows import make_row

SMALL = SUITES["small"]
FIRST = next(SMALL.make())


@pytest.mark.parametrize("suite", SUITES.values(), ids=lambda suite: suite.name)
def test_every_instance_is_the_stored_one(suite: Any) -> None:
    """By its hash, with nothing stored that is not made any more, and bounds that no stored period is below."""
    stored = read_stored()
    made = list(suite.make())
    check_instances(suite, made, stored)
    instances = stored[suite.name].instances
    assert list(instances) == [instance.name for instance in made]
    for best in instances.values():
        assert best.period_ns is None or best.period_ns >= best.bound_ns > 0
        assert (best.period_ns is None) == (best.period_by is None)
    assert (stored[suite.name].generator, stored[suite.name].seeds) == (suite.generator, suite.seeds)


def test_suites_are_of_the_sizes_that_the_manual_names() -> None:
    """At least 120 problems in the grid, growth from a thousand to ten million operations, both clusters."""
    assert len(list(SUITES["grid"].make())) == 128
    sizes = [instance.num_operations for instance in SUITES["growth"].make()]
    assert (sizes[0], sizes[-1]) == (1536, 10_000_128)
    assert sizes == sorted(set(sizes))
    assert {instance.name for instance in SUITES["cluster"].make()} >= {"llama3-405b", "llama3-405b-dp1024"}
    assert {ppm for instance in SUITES["speeds"].make() for ppm in instance.problem.speeds_ppm.values()} == {
        700_000,
        875_000,
    }


def test_the_stored_file_is_what_is_written() -> None:
    """Letter for letter, so that a change of it can be read."""
    assert PATH.read_text(encoding="utf-8") == to_text(read_stored())


def test_a_changed_or_new_instance_is_noticed() -> None:
    """By its hash; its name alone says nothing."""
    stage = replace(FIRST.problem.stages[0], forward_ns=1001)
    changed = replace(FIRST, problem=replace(FIRST.problem, stages=(stage, *FIRST.problem.stages[1:])))
    with pytest.raises(BenchmarkMismatchError, match="is another problem than the stored one"):
        check_instances(SMALL, [changed], read_stored())
    with pytest.raises(BenchmarkMismatchError, match="is not stored"):
        check_instances(SMALL, [replace(FIRST, name="new")], read_stored())


def test_the_better_of_what_is_known_is_kept() -> None:
    """Only rows of the same problem count whose plan stood its checks, with nothing left out."""
    bound_ns = read_stored()["small"].instances[FIRST.name].bound_ns
    own = {"instance": FIRST.name, "instance_sha256": FIRST.sha256(), "bound_ns": bound_ns}
    rows = [
        make_row(**own, seed=0, period_ns=bound_ns + 7, solver="annealing", found_by="annealing"),
        make_row(**own, seed=1, period_ns=bound_ns + 9),
        make_row(**own, seed=2, period_ns=bound_ns + 1, status="invalid"),
        make_row(**own, seed=3, period_ns=bound_ns + 2, leaves_out="memory"),
        make_row(**(own | {"instance_sha256": "1" * 64}), seed=4, period_ns=bound_ns + 3),
    ]
    (best,) = [suite.instances[FIRST.name] for suite in brought_up_to_date({}, [SMALL], rows).values()]
    assert (best.period_ns, best.bound_ns) == (bound_ns + 7, bound_ns)
    assert best.period_by is not None
    assert best.period_by.startswith("annealing, 5 s, commit ")
    again = brought_up_to_date(brought_up_to_date({}, [SMALL], rows), [SMALL], [])
    assert again["small"].instances[FIRST.name] == best


def test_a_bound_above_a_period_is_refused() -> None:
    """One of them is wrong, and neither is stored."""
    row = make_row(instance=FIRST.name, instance_sha256=FIRST.sha256(), period_ns=1, bound_ns=1)
    with pytest.raises(BenchmarkMismatchError, match="one of them is wrong"):
        brought_up_to_date({}, [SMALL], [row])


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"schema_version": 2}, BenchmarkVersionError),
        ({"schema_version": None}, BenchmarkVersionError),
        ({"format": "replan-bench-results"}, BenchmarkFileError),
        ({"suites": []}, BenchmarkFileError),
        ({"more": 1}, BenchmarkFileError),
    ],
)
def test_a_stored_file_of_another_version_or_form_is_refused(
    tmp_path: Path, change: dict[str, Any], error: type[Exception]
) -> None:
    """With which version was found."""
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(json.loads(PATH.read_text()) | change))
    with pytest.raises(error) as raised:
        read_stored(path)
    assert type(raised.value) is error


def test_suites_by_name() -> None:
    """Each once, in the order given; all of them under one name; others are refused."""
    assert [suite.name for suite in suites_named(["growth", "grid", "growth"])] == ["growth", "grid"]
    assert suites_named(["all"]) == tuple(SUITES.values())
    with pytest.raises(OptionError, match="no suite 'grids'"):
        suites_named(["grids"])
