"""Errors of the benchmark suite, part of the tree in :mod:`planner.errors`.

::

    InputError
    +-- BenchmarkFileError           benchmark_file_invalid   a file of results or instances that cannot be read
    |   +-- BenchmarkVersionError    benchmark_version        one of another version of the format
    +-- BenchmarkMismatchError       benchmark_mismatch       results or instances that are of something else
    +-- BenchmarkSourceError         benchmark_source         results of another commit or machine
"""

from __future__ import annotations

from planner.errors import InputError


class BenchmarkFileError(InputError):
    """A file of benchmark results or instances cannot be read."""

    code = "benchmark_file_invalid"


class BenchmarkVersionError(BenchmarkFileError):
    """A file of benchmark results or instances is of another version of the format."""

    code = "benchmark_version"


class BenchmarkMismatchError(InputError):
    """Benchmark results are of other suites or other instances than what is asked for."""

    code = "benchmark_mismatch"


class BenchmarkSourceError(InputError):
    """Benchmark results are of another commit, other packages or another machine."""

    code = "benchmark_source"
