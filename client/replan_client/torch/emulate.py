"""``python -m replan_client.torch.emulate``: what plans take that are run with emulated compute on this machine.

``run FILE`` runs a plan's programs (:class:`~replan_client.torch.emulation_run.EmulatedRun` as JSON) and prints the periods;
``links`` prints what messages and all-reduces take between processes here. Both print one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from replan_client.torch.emulation_run import EmulatedRun, emulate, run_from_document
from replan_client.torch.profiler_errors import EmulationError
from replan_client.torch.profiler_links import measure_local_links


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0, or 2 where something is wrong with what it was given or what it ran."""
    parser = argparse.ArgumentParser(prog="python -m replan_client.torch.emulate", description=__doc__)
    parser.add_argument("--timeout-s", type=float, default=600.0, help="seconds for all of it (600)")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a plan's programs")
    run.add_argument("file", type=Path, help="stages, programs and how often, as JSON")
    links = commands.add_parser("links", help="measure messages and all-reduces")
    links.add_argument("--message-bytes", type=int, required=True, help="bytes of a message")
    links.add_argument("--gradient-bytes", type=int, required=True, help="bytes of an all-reduce")
    links.add_argument("--peers", type=int, required=True, help="processes of an all-reduce, 2 or more")
    options = parser.parse_args(arguments)
    try:
        if options.command == "run":
            found = asdict(emulate(_read(options.file), timeout_s=options.timeout_s))
        else:
            times = measure_local_links(
                options.peers,
                transfer_bytes=[options.message_bytes],
                all_reduce_bytes=[options.gradient_bytes],
                timeout_s=options.timeout_s,
            )
            found = {
                "transfer_us": times.transfer_us[options.message_bytes],
                "all_reduce_us": times.all_reduce_us[options.gradient_bytes],
            }
    except EmulationError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


def _read(path: Path) -> EmulatedRun:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EmulationError(f"{path} cannot be read as JSON: {error}") from error
    return run_from_document(document)


if __name__ == "__main__":
    sys.exit(main())
