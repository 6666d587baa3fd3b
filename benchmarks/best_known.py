"""What is known of every instance, as stored beside the code; ``python -m benchmarks.best_known RESULTS...`` updates it.

Instances are made by their suite's generator, so the file holds each one's hash in place of the problem: a change of a
generator does not pass unnoticed. Beside it stand the best lower bound and the best period that are known, and who found each.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from benchmarks.errors import BenchmarkFileError, BenchmarkMismatchError, BenchmarkVersionError
from benchmarks.instance import Instance
from benchmarks.results_file import read_results
from benchmarks.row import Hex, Row
from benchmarks.suites import SUITES, Suite
from planner.bounds import best_bound
from planner.formats.documents import parse_document, read_text
from planner.formats.whole_file import write_whole

PATH = Path(__file__).parent / "instances.json"
FORMAT = "replan-bench-instances"
SCHEMA_VERSION = 1


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class BestKnown(_Form):
    """One instance: its hash, its size, and the best that is known.

    ``published_ns`` is what somebody else published for it.
    """

    sha256: Hex
    operations: Annotated[int, Field(ge=1)]
    bound_ns: Annotated[int, Field(ge=0)]
    bound_by: str
    period_ns: Annotated[int, Field(ge=1)] | None = None
    period_by: str | None = None
    published_ns: Annotated[int, Field(ge=1)] | None = None
    published_by: str | None = None


class StoredSuite(_Form):
    """One suite: where its numbers are from, what makes its instances, and what is known of each by name."""

    summary: str
    source: str
    generator: str
    seeds: tuple[int, ...]
    instances: dict[str, BestKnown]


class StoredInstances(_Form):
    """The file."""

    format: Literal["replan-bench-instances"]
    schema_version: Literal[1]
    suites: dict[str, StoredSuite]


def read_stored(path: Path = PATH) -> Mapping[str, StoredSuite]:
    """Stored suites by name.

    Raises
    ------
    BenchmarkFileError
        If the file cannot be read or is not of that form.
    BenchmarkVersionError
        If it is of another version.
    """
    document = parse_document(read_text(path, error=BenchmarkFileError), format="json", error=BenchmarkFileError)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise BenchmarkFileError(f"{path.name} is no file of instances; expected format {FORMAT!r}")
    if document.get("schema_version") != SCHEMA_VERSION:
        raise BenchmarkVersionError(
            f"{path.name}: schema_version is {str(document.get('schema_version'))[:20]}; "
            f"this RePlan reads version {SCHEMA_VERSION}"
        )
    try:
        return StoredInstances.model_validate_json(json.dumps(document)).suites
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise BenchmarkFileError(f"{path.name}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def check_instances(suite: Suite, instances: Iterable[Instance], stored: Mapping[str, StoredSuite]) -> None:
    """Check that a generator still makes the instances that are stored.

    Raises
    ------
    BenchmarkMismatchError
        If one is another problem, or is not stored at all.
    """
    known = stored[suite.name].instances if suite.name in stored else {}
    for instance in instances:
        expected = known.get(instance.name)
        if expected is None or expected.sha256 != instance.sha256():
            what = "is not stored" if expected is None else "is another problem than the stored one"
            raise BenchmarkMismatchError(
                f"instance {instance.name} of suite {suite.name}, made by {suite.generator}, {what}",
                hint="results of it could not be compared; undo the change, or give the instance another name and run "
                "python -m benchmarks.best_known",
            )


def brought_up_to_date(
    stored: Mapping[str, StoredSuite], suites: Sequence[Suite], rows: Iterable[Row]
) -> dict[str, StoredSuite]:
    """Every suite with the better of what is stored, what the bounds prove, and what rows found.

    Only rows of the same problem count that were solved as a whole, with nothing left out of it.
    """
    by_instance: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        by_instance.setdefault((row.suite, row.instance), []).append(row)
    found = {}
    for suite in suites:
        known = stored[suite.name].instances if suite.name in stored else {}
        found[suite.name] = StoredSuite(
            summary=suite.summary,
            source=suite.source,
            generator=suite.generator,
            seeds=suite.seeds,
            instances={
                instance.name: _best(
                    instance, known.get(instance.name), by_instance.get((suite.name, instance.name), ())
                )
                for instance in suite.make()
            },
        )
    return found


def _best(instance: Instance, known: BestKnown | None, rows: Sequence[Row]) -> BestKnown:
    sha256 = instance.sha256()
    bound = best_bound(instance.problem)
    bounds: list[tuple[int, str]] = [(bound.value_ns, f"{bound.name} bound")]
    periods: list[tuple[int, str]] = []
    if known is not None and known.sha256 == sha256:
        bounds.insert(0, (known.bound_ns, known.bound_by))
        if known.period_ns is not None and known.period_by is not None:
            periods.append((known.period_ns, known.period_by))
    for row in rows:
        if (
            row.instance_sha256 == sha256
            and not row.leaves_out
            and row.period_ns is not None
            and row.status != "invalid"
        ):
            periods.append((row.period_ns, f"{row.found_by}, {_when(row)}"))
        if row.instance_sha256 == sha256 and not row.leaves_out and row.status in ("optimal", "feasible"):
            bounds.append((row.bound_ns, f"{row.solver}, {_when(row)}"))
    best_period = min(periods, key=lambda pair: pair[0], default=(None, None))
    best_of_bounds = max(bounds, key=lambda pair: pair[0])
    if best_period[0] is not None and best_of_bounds[0] > best_period[0]:
        raise BenchmarkMismatchError(
            f"instance {instance.name}: the bound {best_of_bounds[0]} ns ({best_of_bounds[1]}) is above the period "
            f"{best_period[0]} ns ({best_period[1]}); one of them is wrong"
        )
    return BestKnown(
        sha256=sha256,
        operations=instance.num_operations,
        bound_ns=best_of_bounds[0],
        bound_by=best_of_bounds[1],
        period_ns=best_period[0],
        period_by=best_period[1],
        published_ns=instance.published_ns,
        published_by=instance.published_by or None,
    )


def _when(row: Row) -> str:
    return f"{row.deadline_s:g} s, commit {(row.commit or 'unknown')[:7]}"


def to_text(suites: Mapping[str, StoredSuite]) -> str:
    """The file's text: one instance a line, so that changes can be read."""
    lines = [f'{{\n"format": "{FORMAT}",\n"schema_version": {SCHEMA_VERSION},\n"suites": {{']
    for number, (name, suite) in enumerate(suites.items()):
        facts: dict[str, Any] = suite.model_dump(exclude={"instances"}, mode="json")
        head = json.dumps(facts)[:-1]
        rows = [
            f"  {json.dumps(instance)}: {known.model_dump_json(exclude_none=True)}"
            for instance, known in suite.instances.items()
        ]
        end = "," if number + 1 < len(suites) else ""
        lines.append(f'{json.dumps(name)}: {head}, "instances": {{\n' + ",\n".join(rows) + f"\n}}}}{end}")
    return "\n".join([*lines, "}\n}\n"])


def main() -> None:
    """Merge results into the stored file."""
    parser = argparse.ArgumentParser(description="bring the best known bounds and periods up to date")
    parser.add_argument("results", nargs="*", type=Path, help="files of replan bench run; none for the bounds alone")
    arguments = parser.parse_args()
    rows = [row for path in arguments.results for row in read_results(path).rows]
    stored = read_stored() if PATH.exists() else {}
    made = brought_up_to_date(stored, tuple(SUITES.values()), rows)
    write_whole(PATH, to_text(made).encode("utf-8"))
    count = sum(len(suite.instances) for suite in made.values())
    optimal = sum(k.period_ns == k.bound_ns for suite in made.values() for k in suite.instances.values())
    sys.stdout.write(f"{count} instances of {len(made)} suites, {optimal} of them solved to proved optimality\n")


if __name__ == "__main__":
    main()
