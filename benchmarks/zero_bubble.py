"""Zero Bubble's twelve measured rows and the bubble rates it published for them.

Source: Qi, Wan, Huang, Lin, "Zero Bubble Pipeline Parallelism" (ICLR 2024): costs from Table 6 (A100, milliseconds), bubble rates
of ZB-H1 (1F1B memory) and ZB-2p (twice that) from Table 5. Memory as there: F takes 2, I gives back 1, W gives back 1. Each row
also stands with its stages halved and placed as a V, at 1F1B memory (ZB-V), for which no rates are published.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from planner.job import Placement, place_stages
from planner.problem import Problem, Slot, Stage

_ROWS = (
    # model, slots, microbatches, F, I, W, transfer (us), ZB-H1 rate, ZB-2p rate
    ("1.5b", 8, 24, 18522, 18086, 9337, 601, 0.1585, 0.0433),
    ("1.5b", 8, 32, 18513, 18086, 9331, 626, 0.1242, 0.0039),
    ("1.5b", 8, 64, 18546, 18097, 9321, 762, 0.0674, 0.0026),
    ("6.2b", 8, 24, 29718, 29444, 19927, 527, 0.1323, 0.0029),
    ("6.2b", 8, 32, 29802, 29428, 19530, 577, 0.1045, 0.0022),
    ("6.2b", 8, 64, 29935, 29621, 19388, 535, 0.0554, 0.0010),
    ("14.6b", 16, 48, 11347, 11248, 8132, 377, 0.1397, 0.0066),
    ("14.6b", 16, 64, 11307, 11254, 8101, 379, 0.1088, 0.0054),
    ("14.6b", 16, 128, 11325, 11308, 8109, 378, 0.0576, 0.0028),
    ("28.3b", 32, 96, 10419, 10207, 7715, 408, 0.1421, 0.0038),
    ("28.3b", 32, 128, 10408, 10204, 7703, 408, 0.1106, 0.0029),
    ("28.3b", 32, 256, 10402, 10248, 7698, 460, 0.0594, 0.0018),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroBubbleRow:
    """A measured row at one memory and placement.

    Parameters
    ----------
    name
        ``zb-MODEL-mM-`` and ``mem1``, ``mem2`` or ``v``.
    problem
        The instance.
    published_rate
        Bubble rate from the paper; ``None`` where it has none.
    work_ns
        Busy time of a worker.
    """

    name: str
    problem: Problem
    published_rate: float | None
    work_ns: int


def zero_bubble_rows() -> Iterator[ZeroBubbleRow]:
    """Yield the 36 problems: twelve rows, each at 1F1B memory, at twice that, and as a V."""
    for model, slots, count, forward, input_grad, weight_grad, transfer, h1_rate, two_p_rate in _ROWS:
        stage = Stage(
            forward_ns=forward * 1000,
            input_grad_ns=input_grad * 1000,
            weight_grad_ns=weight_grad * 1000,
            transfer_ns=transfer * 1000,
            activation_bytes=2,
            weight_grad_bytes=1,
        )
        half = replace(
            stage, forward_ns=forward * 500, input_grad_ns=input_grad * 500, weight_grad_ns=weight_grad * 500
        )
        one_each = tuple((s,) for s in range(slots))
        # A half takes as much as a whole stage, so that all are whole bytes: capacity then is twice as much.
        for kind, one, held, capacity, rate in (
            ("mem1", stage, one_each, 2 * slots, h1_rate),
            ("mem2", stage, one_each, 4 * slots, two_p_rate),
            ("v", half, place_stages(Placement.V, slots, 2 * slots), 4 * slots, None),
        ):
            yield ZeroBubbleRow(
                name=f"zb-{model}-m{count}-{kind}",
                problem=Problem(
                    stages=(one,) * sum(map(len, held)),
                    slots=tuple(Slot(stages=stages, capacity_bytes=capacity) for stages in held),
                    microbatches=(count,),
                ),
                published_rate=rate,
                work_ns=count * (forward + input_grad + weight_grad) * 1000,
            )
