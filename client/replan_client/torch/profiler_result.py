"""What the profiler found, and the form in which a job file takes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from replan_client.torch.profiler_job_file import Cost
from replan_client.torch.profiler_links import LinkTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class StageProfile:
    """Costs of one stage, as measured; times in microseconds, sizes in bytes of one GPU.

    Invariant: ``weight_grad_bytes <= activation_bytes``.

    Parameters
    ----------
    stage
        Number of the stage in model order.
    forward_us, input_grad_us, weight_grad_us
        F, I and W of one microbatch. Where ``splittable`` is false I counts for both, and W is 0.
    backward_us
        The whole backward at once (B). The planner takes I + W for it.
    splittable
        Whether I and W can run apart.
    activation_bytes
        Held by one microbatch from the start of F to the end of I, its input among it.
    weight_grad_bytes
        How much of that stays to the end of W.
    workspace_bytes
        Most bytes any operation took for a moment beyond these two: room that one worker needs once, however many microbatches
        it holds.
    parameter_bytes
        Parameters and buffers.
    gradient_bytes
        Gradients of the parameters that are trained: what the all-reduce sends.
    optimizer_state_bytes
        State of the optimizer after its first step.
    optimizer_us
        Weighing the gradients and one step of the optimizer.
    output_bytes
        Output of one microbatch: the message to the next stage; 0 for the last one.
    transfer_us
        Time of that message; ``None`` where no link was measured.
    all_reduce_us
        Time of the gradients' all-reduce; ``None`` where no group was measured.
    """

    stage: int
    forward_us: float
    input_grad_us: float
    weight_grad_us: float
    backward_us: float
    splittable: bool
    activation_bytes: int
    weight_grad_bytes: int
    workspace_bytes: int
    parameter_bytes: int
    gradient_bytes: int
    optimizer_state_bytes: int
    optimizer_us: float
    output_bytes: int
    transfer_us: float | None = None
    all_reduce_us: float | None = None

    @property
    def resident_bytes(self) -> int:
        """What a worker holds beside its microbatches, for this stage.

        Parameters and optimizer state twice, since the executor keeps both as they were before the last step; gradients;
        the workspace.
        """
        return 2 * (self.parameter_bytes + self.optimizer_state_bytes) + self.gradient_bytes + self.workspace_bytes

    def to_document(self) -> dict[str, Cost]:
        """Entry of ``stages`` in a job file; what was not measured is left out, so that ``stage_costs`` says it."""
        entry: dict[str, Cost] = {
            "forward_us": round(self.forward_us, 3),
            "input_grad_us": round(self.input_grad_us, 3),
            "weight_grad_us": round(self.weight_grad_us, 3),
            "splittable": self.splittable,
            "activation_bytes": self.activation_bytes,
            "weight_grad_bytes": self.weight_grad_bytes,
            "optimizer_us": round(self.optimizer_us, 3),
            "parameter_bytes": self.parameter_bytes,
            "optimizer_state_bytes": self.optimizer_state_bytes,
        }
        if self.transfer_us is not None:
            entry["transfer_us"] = round(self.transfer_us, 3)
        if self.all_reduce_us is not None:
            entry["all_reduce_us"] = round(self.all_reduce_us, 3)
        return entry


def with_link_times(profiles: Sequence[StageProfile], times: LinkTimes) -> tuple[StageProfile, ...]:
    """Profiles with the times of their messages and all-reduces, where their sizes were measured.

    Nothing follows the last stage: its transfer is 0.
    """
    return tuple(
        replace(
            profile,
            transfer_us=times.transfer_us.get(profile.output_bytes) if profile.output_bytes else 0.0,
            all_reduce_us=times.all_reduce_us.get(profile.gradient_bytes),
        )
        for profile in profiles
    )
