"""Kubernetes' node conditions as failure events."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from api.adapters.errors import ReportError
from api.adapters.kubernetes import kubernetes_events
from api.adapters.verdicts import Verdict
from planner.errors import DocumentLimitError
from planner.failure_state import FailureState
from tests.api.adapters.jobs import GPUS, follow, job_on

JOB = job_on()
NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
LONG_AGO = "2026-11-01T00:00:00Z"


def node(name: str, ready: str | None = "True", *, since: str = LONG_AGO, **fields: Any) -> dict[str, Any]:
    """A Node object as ``kubectl get nodes -o json`` prints it, shortened."""
    conditions = [
        {
            "lastHeartbeatTime": "2026-11-30T11:58:12Z",
            "lastTransitionTime": LONG_AGO,
            "message": "kubelet has sufficient memory available",
            "reason": "KubeletHasSufficientMemory",
            "status": "Unknown" if ready == "Unknown" else "False",
            "type": "MemoryPressure",
        },
    ]
    if ready is not None:
        conditions.append(
            {
                "lastHeartbeatTime": "2026-11-30T11:58:12Z",
                "lastTransitionTime": since,
                "message": "kubelet is posting ready status",
                "reason": "KubeletReady",
                "status": ready,
                "type": "Ready",
            }
        )
    made: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}, "uid": "c0ffee"},
        "spec": {"podCIDR": "10.244.1.0/24", "providerID": f"metal://{name}"},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "10.0.0.7"}, {"type": "Hostname", "address": name}],
            "allocatable": {"cpu": "96", "nvidia.com/gpu": "8"},
            "conditions": conditions,
            "images": [{"names": ["registry.example/pause:3.10"], "sizeBytes": 736796}],
        },
    }
    for path, value in fields.items():
        part, _, field = path.partition("_")
        made[part][field] = value
    return made


def listed(*nodes: dict[str, Any], **fields: Any) -> str:
    """The list that kubectl prints."""
    document = {"apiVersion": "v1", "items": list(nodes), "kind": "List", "metadata": {"resourceVersion": ""}}
    return json.dumps(document | fields)


def said(text: str, state: FailureState | None = None, **options: Any) -> list[str]:
    """What the events of a list say; checks that the list repeated says nothing."""
    return follow(JOB, state or FailureState(), lambda known: kubernetes_events(text, JOB, known, now=NOW, **options))[
        1
    ]


def every(*changed: dict[str, Any]) -> str:
    """A list of all nodes of the job, ready, but for these."""
    by_name = {name: node(name) for name in GPUS} | {item["metadata"]["name"]: item for item in changed}
    return listed(*by_name.values(), node("control-plane-1"))


def test_ready_false_unknown_and_gone() -> None:
    """False and Unknown are failures, and so is a node that was deleted."""
    text = every(node("gpu0002", "False"), node("gpu0005", "Unknown"))
    assert said(text) == ["node_failed gpu[0002,0005]"]
    assert said(text, silent=Verdict.KEEP) == ["node_failed gpu0002"]
    gone = listed(*(node(name) for name in GPUS if name != "gpu0004"))
    assert said(gone) == ["node_failed gpu0004"]
    assert said(gone, missing=Verdict.KEEP) == []


def test_a_node_is_back_once_it_stays_ready() -> None:
    """59 s are too few by default; the wait can be left out, and a node that never failed is not concerned."""
    state = FailureState(nodes=("gpu0003",))
    fresh = every(node("gpu0003", since="2026-11-30T11:59:01Z"), node("gpu0001", since="2026-11-30T11:59:59Z"))
    assert said(fresh, state) == []
    assert said(fresh, state, settle_s=59) == ["node_recovered gpu0003"]
    assert said(every(node("gpu0003", since="2026-11-30T12:59:00+01:00")), state) == ["node_recovered gpu0003"]
    # A clock that is ahead of ours does not make it settled.
    assert said(every(node("gpu0003", since="2026-11-30T12:00:05Z")), state) == []


def test_cordoned_nodes_stay_what_they_are() -> None:
    """Pods on a cordoned node run on; a failed node that is cordoned is not back."""
    text = every(node("gpu0001", spec_unschedulable=True), node("gpu0002", spec_unschedulable=True))
    assert said(text, FailureState(nodes=("gpu0002",))) == []


def test_other_conditions_and_taints() -> None:
    """The network, the taint of a node that was shut down, and what the caller names; pressure is no failure."""
    gpu_fault = node("gpu0006")
    gpu_fault["status"]["conditions"].append({"type": "GpuXidError", "status": "True"})
    network = node("gpu0007")
    network["status"]["conditions"].append({"type": "NetworkUnavailable", "status": "True"})
    pressure = node("gpu0005")
    pressure["status"]["conditions"][0]["status"] = "True"
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
    text = every(gpu_fault, network, pressure, node("gpu0008", spec_taints=[taint]))
    assert said(text) == ["node_failed gpu[0007-0008]"]
    assert said(text, failing_conditions=["GpuXidError"]) == ["node_failed gpu[0006-0008]"]


def test_nodes_that_are_being_set_up() -> None:
    """Without conditions nothing is known."""
    assert said(every(node("gpu0001", None), node("gpu0002", status_conditions=None))) == []


def test_names_come_from_metadata_or_host_names() -> None:
    """A cloud's node name may be an address while the job uses host names."""
    items = [
        node(f"ip-10-0-0-{n}.ec2.internal", status_addresses=[{"type": "Hostname", "address": name}])
        for n, name in enumerate(GPUS)
    ]
    items[2]["status"]["conditions"][1]["status"] = "False"
    assert said(listed(*items)) == ["node_failed gpu0003"]
    two = [{"type": "Hostname", "address": "gpu0001"}, {"type": "InternalDNS", "address": "gpu0002.internal"}]
    with pytest.raises(ReportError, match=r"items\.0 \(x\) has addresses of nodes gpu0001 and gpu0002"):
        said(listed(node("x", status_addresses=two)))


def test_the_api_s_own_list() -> None:
    """A NodeList, whose items have no kind."""
    items = [node(name, "False" if name == "gpu0001" else "True") for name in GPUS]
    for item in items:
        del item["kind"], item["apiVersion"]
    assert said(listed(*items, kind="NodeList", metadata={"resourceVersion": "123"})) == ["node_failed gpu0001"]


READY = [node(name) for name in GPUS]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "malformed JSON"),
        ("NAME STATUS ROLES AGE VERSION", "line 1, column 1: malformed JSON"),
        (listed(), "names no node of job"),
        (listed(node("other")), "names no node of job"),
        (json.dumps(READY[0]), "kind: Input should be 'List' or 'NodeList'"),
        (listed(*READY, apiVersion="v2"), "apiVersion: Input should be 'v1'"),
        (listed(*READY, items=None), "items: Input should be a valid list"),
        (listed(*READY, metadata={"continue": "abc"}), "is only its first part"),
        (listed(*READY, {"kind": "Pod", "metadata": {"name": "x"}}), "items.8.kind: Input should be 'Node'"),
        (listed({"kind": "Node", "metadata": {}}), "items.0.metadata.name: Field required"),
        (listed({"kind": "Node", "metadata": {"name": ""}}), "items.0.metadata.name"),
        (listed(*READY, node("gpu0001.x.example", "False")), "node gpu0001 is failed, but in_service further up"),
        (every(node("gpu0001", "true")), "items.0.status.conditions.1.status: Input should be"),
        (every(node("gpu0001", since="yesterday")), "items.0.status.conditions.1.lastTransitionTime"),
        (every(node("gpu0001", since="2026-11-30T11:59:01")), r"items\.0 \(gpu0001\): .* has no time zone"),
        (listed(*(node(name, "Unknown") for name in GPUS)), "says that every node of job 'job' is down"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, message: str) -> None:
    """Place in the document, what was found, and nothing reported."""
    with pytest.raises(ReportError, match=message):
        kubernetes_events(text, JOB, FailureState(), now=NOW)


def test_a_condition_that_stands_twice_is_refused() -> None:
    """Which of them holds cannot be told."""
    twice = node("gpu0001")
    twice["status"]["conditions"] *= 2
    with pytest.raises(ReportError, match=r"items\.0 \(gpu0001\): a condition stands twice"):
        kubernetes_events(every(twice), JOB, FailureState(), now=NOW)


def test_deep_documents_are_not_read() -> None:
    """Depth is limited before anything is built."""
    with pytest.raises(DocumentLimitError, match="nested deeper"):
        kubernetes_events('{"items":' + "[" * 100_000, JOB, FailureState(), now=NOW)
