"""``python -m replan_client.torch.profile MODULE:FUNCTION --stages V``: measure a model and fill in a job file's costs.

``FUNCTION`` takes nothing and returns the :class:`~replan_client.torch.training.Training` that the training script gives to
``Trainer``. A table goes to standard error. With ``--job FILE`` the file's ``stages`` are replaced and everything else stays
as it is; without, the section goes to standard output.

Started by ``torchrun`` on several nodes, the first process measures the model, then all of them measure the network: messages
between the first two, all-reduces among all. So start as many as there are pipelines, one a node. ``--local-links D`` measures
between ``D`` processes of this machine instead.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from replan_client.errors import ClientError
from replan_client.torch.profiler import profile_stages
from replan_client.torch.profiler_errors import ProfileError
from replan_client.torch.profiler_job_file import put_stages, stages_section
from replan_client.torch.profiler_links import LinkTimes, measure_links, measure_local_links
from replan_client.torch.profiler_result import StageProfile, with_link_times
from replan_client.torch.profiler_table import table
from replan_client.torch.training import Training

_PATIENCE = timedelta(hours=6)
"""How long processes that only help to measure the network wait for the first one to have measured the model."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0, or 2 where it was given something that it cannot work with."""
    options = _parser().parse_args(arguments)
    try:
        _run(options)
    except ClientError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m replan_client.torch.profile",
        description="Measure a model's stages and write their costs into a job file.",
    )
    parser.add_argument("model", metavar="MODULE:FUNCTION", help="function that returns the Training")
    parser.add_argument("--stages", type=int, required=True, metavar="V", help="number of stages")
    parser.add_argument("--job", type=Path, metavar="FILE", help="job file, YAML or JSON, whose stages are replaced")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the job here and leave --job as it is")
    parser.add_argument("--device", default="cpu", help="cpu (the default) or cuda")
    parser.add_argument("--repeats", type=int, default=10, metavar="N", help="runs of each operation that count (10)")
    parser.add_argument(
        "--local-links", type=int, metavar="D", help="measure links between D processes of this machine"
    )
    return parser


def _run(options: argparse.Namespace) -> None:
    if options.output is not None and options.job is None:
        raise ProfileError("--output is given without --job; expected the job file that the costs go into")
    if options.local_links is not None and options.local_links < 2:
        raise ProfileError(f"--local-links is {options.local_links}; expected 2 or more processes")
    # Read first: a typing error must not cost the measuring.
    text = None if options.job is None else _read(options.job)
    if text is not None:
        put_stages(text, ())
    here = _place(options)
    profiles: tuple[StageProfile, ...] = ()
    if here.number == 0:
        profiles = profile_stages(
            _load(options.model), options.stages, device=here.device, repeats=options.repeats, warm_up=3
        )
    times = _measure_links(options, here, profiles)
    if here.number > 0:
        return
    if times is not None:
        profiles = with_link_times(profiles, times)
    sys.stderr.write(table(profiles))
    stages = [profile.to_document() for profile in profiles]
    comment = f"measured with PyTorch {torch.__version__} on {_device_name(here.device)}, {options.repeats} repeats"
    if text is None:
        sys.stdout.write(stages_section(stages, comment=comment))
        return
    _write(options.output or options.job, put_stages(text, stages, comment=comment))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where the command runs: one of several processes that torchrun started, or alone."""

    number: int
    count: int
    device: torch.device
    store: dist.Store | None


def _place(options: argparse.Namespace) -> _Place:
    try:
        device = torch.device(options.device)
    except RuntimeError as error:
        raise ProfileError(f"--device {options.device}: expected cpu or cuda") from error
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise ProfileError("--device cuda: PyTorch finds no GPU here")
        device = torch.device("cuda", device.index or int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if count == 1:
        return _Place(number=0, count=1, device=device, store=None)
    if options.local_links is not None:
        raise ProfileError("--local-links under torchrun: the processes that it started measure the links")
    store, number, count = next(dist.rendezvous("env://", timeout=_PATIENCE))
    return _Place(number=number, count=count, device=device, store=dist.PrefixStore("replan-profile", store))


def _measure_links(options: argparse.Namespace, here: _Place, profiles: tuple[StageProfile, ...]) -> LinkTimes | None:
    messages = sorted({profile.output_bytes for profile in profiles} - {0})
    gradients = sorted({profile.gradient_bytes for profile in profiles})
    if here.store is None:
        if options.local_links is None:
            return None
        return measure_local_links(options.local_links, transfer_bytes=messages, all_reduce_bytes=gradients)
    if here.number == 0:
        here.store.set("sizes", json.dumps([messages, gradients]))
    here.store.wait(["sizes"], _PATIENCE)
    messages, gradients = json.loads(here.store.get("sizes"))
    return measure_links(
        here.store,
        here.number,
        here.count,
        transfer_bytes=messages,
        all_reduce_bytes=gradients,
        device=here.device,
    )


def _load(name: str) -> Training:
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise ProfileError(f"{name!r} names no function; expected MODULE:FUNCTION, such as my_model:training")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise ProfileError(
            f"{name} cannot be loaded: {error}", hint="start the command where Python finds it"
        ) from error
    training = function()
    if not isinstance(training, Training):
        raise ProfileError(f"{name} returned a {type(training).__name__}; expected a Training")
    return training


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path} cannot be read: {error}") from error


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)
    except OSError as error:
        raise ProfileError(f"{path} cannot be written: {error}") from error


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} CPU threads"


if __name__ == "__main__":
    sys.exit(main())
