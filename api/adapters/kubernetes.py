"""Kubernetes: node conditions as failure events.

Source: the Node object of the core v1 API, "Node status" and "Nodes" in the Kubernetes documentation, version 1.32. Read is what
``kubectl get nodes -o json`` prints, or the API's NodeList: of each node its name, the addresses of type Hostname and
InternalDNS, ``spec.unschedulable``, the taint ``node.kubernetes.io/out-of-service``, and of each condition type, status and
``lastTransitionTime``.

- ``Ready`` is True: in service, if it has been so for some time (``settle_s``); before that what is known stays, so that a
  node that flaps stays out. On a cordoned node the job's pods run on, and one that failed is not back.
- ``Ready`` is False: failed.
- ``Ready`` is Unknown: *silent*. The control plane has not heard from it for the grace period (50 s by default). A node that
  loses power never becomes False: it stays Unknown, and is failed here unless the caller says otherwise.
- Without a condition Ready the node is still being set up: what is known stays.
- ``NetworkUnavailable`` True, a condition that the caller names (such as one of node-problem-detector), or the taint
  out-of-service: failed. Memory, disk and PID pressure are no failures.
- A node of the job that is not listed has been deleted: failed, unless the caller says otherwise.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api.adapters.errors import ReportError
from api.adapters.node_names import NodeNames
from api.adapters.verdicts import Verdict, node_events, record
from planner.failure_state import FailureEvent, FailureState
from planner.formats.documents import parse_document
from planner.job import Job

MAX_BYTES = 256 * 2**20
"""Longest list read, 256 MiB: with fifty images each, 2,048 nodes take 40."""

MAX_NODES = 2**17
"""Most nodes in a list."""

SOURCE = "the list of nodes"

SETTLE_S = 60.0
"""Seconds that a node has to be ready before it is back, unless the caller says otherwise."""

_FAILING = frozenset(("NetworkUnavailable",))
_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
_NAME_ADDRESSES = ("Hostname", "InternalDNS")
_Name = Annotated[str, Field(min_length=1, max_length=253)]


class _Form(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _Condition(_Form):
    type: str
    status: Literal["True", "False", "Unknown"]
    lastTransitionTime: datetime | None = None  # noqa: N815 - Kubernetes' spelling


class _Address(_Form):
    type: str
    address: str


class _Taint(_Form):
    key: str


class _Spec(_Form):
    unschedulable: bool = False
    taints: list[_Taint] | None = None


class _Status(_Form):
    conditions: list[_Condition] | None = None
    addresses: list[_Address] | None = None


class _Metadata(_Form):
    name: _Name


class _Node(_Form):
    kind: Literal["Node"] = "Node"
    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _ListMetadata(_Form):
    continue_: str | None = Field(default=None, alias="continue")


class _NodeList(_Form):
    kind: Literal["List", "NodeList"]
    apiVersion: Literal["v1"]  # noqa: N815 - Kubernetes' spelling
    metadata: _ListMetadata = _ListMetadata()
    items: list[_Node] = Field(max_length=MAX_NODES)


def kubernetes_events(
    text: str,
    job: Job,
    state: FailureState,
    *,
    now: datetime,
    silent: Verdict = Verdict.FAILED,
    missing: Verdict = Verdict.FAILED,
    settle_s: float = SETTLE_S,
    failing_conditions: Collection[str] = (),
) -> tuple[FailureEvent, ...]:
    """Events that a list of nodes gives for a job.

    Parameters
    ----------
    text
        The list, JSON.
    job
        The job; nodes that it does not have are passed over.
    state
        What is known to be down.
    now
        When the list was made, with a time zone.
    silent
        What a node is whose condition Ready is Unknown.
    missing
        What a node of the job is that is not in the list.
    settle_s
        Seconds that a node has to be ready before it is back, at least 0.
    failing_conditions
        Further types of conditions that make a node failed where they are True.

    Raises
    ------
    ReportError
        If the list is malformed or only a part, contradicts itself, names no node of the job, or leaves none of them.
    DocumentLimitError
        If it is longer than :data:`MAX_BYTES` or nested too deep.

    Examples
    --------
    Of a list in which gpu0008's condition Ready is Unknown it is one ``node_failed`` event of gpu0008.
    """
    document = parse_document(text, format="json", max_bytes=MAX_BYTES, error=ReportError)
    try:
        nodes = _NodeList.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise ReportError(
            f"{SOURCE}: {'.'.join(map(str, first['loc'])) or 'the document'}: {first['msg']}",
            hint="expected what kubectl get nodes -o json prints",
        ) from error
    if nodes.metadata.continue_:
        raise ReportError(f"{SOURCE} is only its first part; expected all nodes", hint="ask for it without a limit")
    names = NodeNames(job.topology.nodes)
    failing = _FAILING.union(failing_conditions)
    verdicts: dict[str, Verdict] = {}
    for index, item in enumerate(nodes.items):
        where = f"{SOURCE}, items.{index} ({item.metadata.name})"
        node = _find(names, item, where)
        if node is not None:
            record(verdicts, node, _verdict(item, failing, silent, now, settle_s, where), where)
    return node_events(job, state, verdicts, missing=missing, source=SOURCE)


def _find(names: NodeNames, item: _Node, where: str) -> str | None:
    """Node of the job that has the object's name, or else one of its host names."""
    found = names.find(item.metadata.name, where)
    if found is not None:
        return found
    hosts = (address.address for address in item.status.addresses or () if address.type in _NAME_ADDRESSES)
    every = {node for node in (names.find(host, where) for host in hosts) if node is not None}
    if len(every) > 1:
        raise ReportError(
            f"{where} has addresses of nodes {' and '.join(sorted(every)[:4])}; expected one node of the job"
        )
    return every.pop() if every else None


def _verdict(
    item: _Node, failing: Collection[str], silent: Verdict, now: datetime, settle_s: float, where: str
) -> Verdict:
    conditions = {condition.type: condition for condition in item.status.conditions or ()}
    if len(conditions) != len(item.status.conditions or ()):
        raise ReportError(f"{where}: a condition stands twice; expected each type once")
    is_out = any(taint.key == _OUT_OF_SERVICE for taint in item.spec.taints or ())
    ready = conditions.get("Ready")
    if is_out or any(kind in failing and condition.status == "True" for kind, condition in conditions.items()):
        return Verdict.FAILED
    if ready is None:
        return Verdict.KEEP
    if ready.status != "True":
        return Verdict.FAILED if ready.status == "False" else silent
    since = ready.lastTransitionTime
    if since is not None and since.tzinfo is None:
        raise ReportError(f"{where}: lastTransitionTime of Ready has no time zone; expected one such as Z")
    is_settled = since is None or (now - since).total_seconds() >= settle_s
    return Verdict.IN_SERVICE if is_settled and not item.spec.unschedulable else Verdict.KEEP
