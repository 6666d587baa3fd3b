"""A job registered with a running service, as tests talk to it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from planner.formats.documents import parse_document

EXAMPLE = Path(__file__).parents[1] / "examples" / "recycle-worked-example.yaml"
DOCUMENT: dict[str, Any] = parse_document(EXAMPLE.read_text(), format="yaml")
"""Three pipelines of four slots, six microbatches each; node ``nNN`` holds worker ``NN // 4`` / ``NN % 4``."""
TIGHT: dict[str, Any] = DOCUMENT | {
    "name": "tight",
    "microbatches": 16,
    "stage_costs": {
        "forward_us": 100,
        "input_grad_us": 130,
        "weight_grad_us": 70,
        "transfer_us": 9,
        "activation_bytes": 10,
        "weight_grad_bytes": 6,
    },
    "capacity_bytes": 45,
}
"""A job whose first schedules leave a gap, which a search closes in a moment."""


@dataclass
class ServedJob:
    """A job under one id."""

    client: httpx2.Client
    id: str
    document: dict[str, Any] = field(default_factory=lambda: DOCUMENT)

    @property
    def path(self) -> str:
        """Path of the job."""
        return f"/v1/jobs/{self.id}"

    def register(self, **fields: Any) -> httpx2.Response:
        """Register it."""
        return self.client.put(self.path, json={"job": self.document, **fields})

    def post(self, kind: str, nodes: str | None = None, *, key: str | None = None, **fields: Any) -> httpx2.Response:
        """Report an event."""
        body = {"kind": kind, **({} if nodes is None else {"nodes": nodes}), **fields}
        return self.client.post(
            f"{self.path}/events", json=body, headers={} if key is None else {"Idempotency-Key": key}
        )

    def report(self, kind: str, nodes: str | None = None, **fields: Any) -> dict[str, Any]:
        """Report an event that is accepted; the epoch that follows."""
        answer = self.post(kind, nodes, **fields)
        assert answer.status_code == 201, answer.text
        body: dict[str, Any] = answer.json()
        return body

    def get(self, path: str, **options: Any) -> httpx2.Response:
        """Get something of the job."""
        return self.client.get(f"{self.path}/{path}", **options)

    def current(self) -> dict[str, Any]:
        """Its current epoch."""
        body: dict[str, Any] = self.get("epochs/current").json()
        return body

    def wait_for(self, cause: str, after: int = 0) -> dict[str, Any]:
        """Its first epoch of a cause behind another one, once it is there; the test's own time limit ends a wait in vain."""
        while True:
            for body in self.get("epochs", params={"after": after}).json():
                if body["cause"] == cause:
                    return dict(body)
            time.sleep(0.05)


def check_problem(answer: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """Check that an answer is the problem document it should be; returns it."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    document: dict[str, Any] = answer.json()
    assert (answer.status_code, document["status"], document["code"]) == (status, status, code), document
    return document
