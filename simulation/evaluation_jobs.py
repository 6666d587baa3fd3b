"""Jobs that the evaluation trains: ReCycle's three models on 32 GPUs, and the same at other sizes.

*Sizes*, from the ReCycle paper (SOSP 2024): GPT-3 Medium, 3.35B and 6.7B on 32 single-GPU nodes, as 2 x 16, 4 x 8 and 8 x 4
slots x pipelines. Its microbatch sizes and numbers could not be looked up: 32 microbatches a pipeline (16 of Medium's) are
assumed.

*Costs*: those that Zero Bubble measured for a layer of its 6.2B model on A100 (arXiv 2401.10241, table 6, p = 8, m = 24;
hidden size 4096, 32 heads, 3 sequences of 1024 tokens), which is a layer of 6.7B and of 3.35B too; Medium's layers are a
sixteenth of that, for its hidden size of 1024. Only ratios of times matter for shares of the fault-free rate, except where
something stands still for some seconds.

*Memory*: half as much again as 1F1B needs on the first slot. *All-reduce*: 2 bytes a parameter around a ring at 12.5 GB/s.
*State*: 14 bytes a parameter (2 for BF16 weights, 12 for FP32 weights and Adam's moments). These are assumed.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.job import Job, JobStage, Placement, Recovery
from planner.layout import OrderedLayout
from planner.problem import Stage
from planner.topology import uniform_racks

LAYER_NS = (7_429_500, 7_361_000, 4_981_750)
"""F, I and W of a layer of hidden size 4096 and one microbatch of 3 sequences."""
TRANSFER_NS = 527_000
LAYER_BYTES = 931_135_488
"""Activations of that layer and microbatch; half of them are kept for W."""
HIDDEN = 4096
RING_BYTES_PER_S = 12.5e9
STATE_BYTES = (2, 12)
"""Bytes a parameter: weights, optimizer state."""
MEMORY = 1.5
SAMPLES_PER_MICROBATCH = 3
NODES_PER_RACK = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One of ReCycle's models.

    Parameters
    ----------
    name
        What tables call it.
    layers, hidden
        Its size.
    slots, pipelines
        How it stands on 32 GPUs.
    microbatches
        Microbatches of a pipeline.
    checkpoint_s
        Seconds that a checkpoint stands still for: what Oobleck's artifact has for Varuna and the model of the nearest size.
    """

    name: str
    layers: int
    hidden: int
    slots: int
    pipelines: int
    microbatches: int
    checkpoint_s: float


MODELS = (
    Model(name="medium", layers=24, hidden=1024, slots=2, pipelines=16, microbatches=16, checkpoint_s=11.2),
    Model(name="3.35b", layers=16, hidden=4096, slots=4, pipelines=8, microbatches=32, checkpoint_s=50.0),
    Model(name="6.7b", layers=32, hidden=4096, slots=8, pipelines=4, microbatches=32, checkpoint_s=120.0),
)


def model_job(model: Model, pipelines: int | None = None) -> Job:
    """A model's job with one GPU a node; ``pipelines`` in place of its own number."""
    number = model.pipelines if pipelines is None else pipelines
    layers, scale = model.layers // model.slots, (model.hidden / HIDDEN) ** 2
    forward, input_grad, weight_grad = (round(cost * layers * scale) for cost in LAYER_NS)
    # Attention's part of a layer's activations grows with the heads, so all of it goes with the hidden size.
    held = round(LAYER_BYTES * layers * model.hidden / HIDDEN)
    parameters = 12 * model.hidden**2 * layers
    all_reduce_s = 2 * (number - 1) / number * 2 * parameters / RING_BYTES_PER_S
    stages = tuple(
        JobStage(
            costs=Stage(
                forward_ns=forward,
                input_grad_ns=input_grad,
                weight_grad_ns=weight_grad,
                transfer_ns=round(TRANSFER_NS * model.hidden / HIDDEN) if s < model.slots - 1 else 0,
                activation_bytes=held,
                weight_grad_bytes=held // 2,
            ),
            all_reduce_ns=round(all_reduce_s * 1e9),
            parameter_bytes=STATE_BYTES[0] * parameters,
            optimizer_state_bytes=STATE_BYTES[1] * parameters,
        )
        for s in range(model.slots)
    )
    nodes = tuple(f"n{i:04d}" for i in range(number * model.slots))
    return Job(
        name=f"gpt3-{model.name}-{model.slots}x{number}",
        topology=uniform_racks(nodes, 1, NODES_PER_RACK),
        layout=OrderedLayout(pipeline_parallel=model.slots, data_parallel=number, rank_order=("pp", "dp")),
        placement=Placement.ONE_A_SLOT,
        slot_stages=tuple((s,) for s in range(model.slots)),
        stages=stages,
        capacity_bytes=(round(MEMORY * model.slots * held),) * model.slots,
        microbatches=(model.microbatches,) * number,
        recovery=Recovery(),
    )
