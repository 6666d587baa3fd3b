"""What a worker tells the service comes there, whatever stands in between for a while."""

from __future__ import annotations

from replan_client.client import Client
from replan_client.torch.reporting import Reporter

from tests.client.proxy import Passing, proxied
from tests.jobs import DOCUMENT
from tests.serving import Server


def test_reports_get_over_pages_of_something_else(server: Server) -> None:
    """The first answers come from something before the service; what was to be said is said again."""
    job_id, url = "reported", str(server.client.base_url).rstrip("/")
    with Client(url) as direct, proxied(url) as proxy, Client(proxy.url) as client:
        direct.register_job(job_id, DOCUMENT)
        pages = [Passing("POST", "", 404, body=b"<html>nothing here") for _ in range(2)]
        proxy.before = lambda _: pages.pop() if pages else None
        reporter = Reporter(client, job_id, "0/2")
        reporter.acknowledge(1, 3)
        reporter.report_failed(1, ["1/2"], 3)
        second = direct.current_epoch(job_id, after=1, wait_s=60.0)
        assert second is not None
        assert second.failed_workers == ("1/2",)
        reporter.close(patience_s=10.0)
        said = {one.worker: one.iteration for one in direct.acknowledgements(job_id, 1).acknowledged}
        assert (pages, said) == ([], {"0/2": 3})
        # Nothing of it is kept as a reason to end.
        reporter.report_failed(2, [], 3)
