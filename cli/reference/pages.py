"""All reference pages by file name."""

from __future__ import annotations

from cli.reference.commands import commands_page
from cli.reference.errors import errors_page
from cli.reference.job_file import job_file_page
from cli.reference.routes import routes_page


def pages() -> dict[str, str]:
    """File name under ``docs/reference/`` to the text of the page, ending in a line break."""
    return {
        "commands.md": commands_page(),
        "errors.md": errors_page(),
        "job-file.md": job_file_page(),
        "routes.md": routes_page(),
    }
