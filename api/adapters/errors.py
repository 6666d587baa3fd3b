"""The error of the adapters."""

from planner.errors import InputError


class ReportError(InputError):
    """A report of another system is malformed, contradicts itself, or does not fit the job."""

    code = "report_malformed"
