"""Deleted jobs, as another server on the same store shows them."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from tests.jobs import ServedJob
from tests.serving import serving


def test_a_job_deleted_at_one_server_is_gone_at_the_other(tmp_path: Path) -> None:
    """Programs that the other server has in memory are not given out any more, also once the id is registered again."""
    with ExitStack() as stack:
        here, there = (
            ServedJob(stack.enter_context(serving(tmp_path / "replan.db", "--processes", "1")).client, "j")
            for _ in range(2)
        )
        assert here.register().status_code == 201
        paths = [f"epochs/1/{what}" for what in ("programs/0/0", "programs/rank:5", "plan")]
        assert [there.get(path).status_code for path in paths] == [200, 200, 200]
        assert here.client.delete(here.path).status_code == 204
        # Servers on one file look for each other's writes some times a second.
        while there.get(paths[0]).status_code != 404:
            time.sleep(0.05)
        assert [there.get(path).status_code for path in paths] == [404, 404, 404]
        assert here.register().json()["epoch"] == 2
        assert [there.get(path).status_code for path in paths] == [404, 404, 404]
        assert there.get("epochs/2/programs/0/0").status_code == 200
