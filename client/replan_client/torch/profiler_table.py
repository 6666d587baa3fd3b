"""A profile as people read it."""

from __future__ import annotations

from collections.abc import Sequence

from replan_client.torch.profiler_result import StageProfile

_HEADS = (
    *("stage", "F us", "I us", "W us", "B us", "held", "to W", "workspace", "parameters", "optimizer"),
    *("step us", "message", "transfer us", "all-reduce us", "beside"),
)


def table(profiles: Sequence[StageProfile]) -> str:
    """Text of one line a stage; sizes in MiB.

    ``held`` is what a microbatch holds to the end of I, ``beside`` what a worker holds beside its microbatches. The last line
    says how the two make ``capacity_bytes``.
    """
    rows = [_HEADS, *(_row(profile) for profile in profiles)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    notes = ["sizes in MiB; capacity_bytes of a slot: a GPU's memory less what stands under 'beside' for its stages"]
    fused = [str(profile.stage) for profile in profiles if not profile.splittable]
    if fused:
        notes.append(f"the backward of stages {', '.join(fused)} cannot be split: I stands for both halves")
    return "\n".join([*lines, *notes]) + "\n"


def _row(profile: StageProfile) -> tuple[str, ...]:
    return (
        str(profile.stage),
        _us(profile.forward_us),
        _us(profile.input_grad_us),
        _us(profile.weight_grad_us),
        _us(profile.backward_us),
        _mib(profile.activation_bytes),
        _mib(profile.weight_grad_bytes),
        _mib(profile.workspace_bytes),
        _mib(profile.parameter_bytes),
        _mib(profile.optimizer_state_bytes),
        _us(profile.optimizer_us),
        _mib(profile.output_bytes),
        _us(profile.transfer_us),
        _us(profile.all_reduce_us),
        _mib(profile.resident_bytes),
    )


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _mib(value: int) -> str:
    return f"{value / 2**20:.2f}"
