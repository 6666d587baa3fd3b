"""What RePlan does, in half a minute: plan a job around a failed node, serve it, fetch a worker's program over HTTP.

Run by ``make demo``; needs ``replan`` on the PATH. The lines that start with ``$`` show the commands, which work by hand
with paths of your own. Ends with a nonzero status as soon as something does not do what it should.
"""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from planner.errors import ReplanError
from planner.formats.documents import parse_document
from planner.formats.job_file import load_job

EXAMPLES = Path(__file__).resolve().parent
PREFERRED = ("llama3-405b.yaml", "zb-1.5b.yaml", "recycle-worked-example.yaml")
COMMAND_TIMEOUT_S = 120
SERVER_START_TIMEOUT_S = 60
SERVER_STOP_TIMEOUT_S = 30
NUM_SHOWN_INSTRUCTIONS = 8

# A proxy that the environment names must not see requests to this machine.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class DemoError(Exception):
    """Something did not do what it should."""


def main() -> int:
    """Run the demonstration and return its exit status."""
    began = time.perf_counter()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds, so that the service is stopped too
    try:
        with tempfile.TemporaryDirectory(prefix="replan-demo-") as folder:
            demonstrate(Path(folder))
    except (DemoError, ReplanError, OSError, subprocess.SubprocessError) as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return 1
    print(f"\nAll of it worked, in {time.perf_counter() - began:.0f} s.")
    return 0


def demonstrate(folder: Path) -> None:
    """Plan on the command line, then the same over HTTP; temporary files go to ``folder``."""
    replan = shutil.which("replan")
    if replan is None:
        raise DemoError("the command `replan` is not on the PATH; run `make demo`")
    job_path = next(EXAMPLES / name for name in PREFERRED if (EXAMPLES / name).exists())
    job = load_job(job_path)
    node = job.topology.nodes[len(job.topology.nodes) // 2]

    heading(f"1. Node {node} of the job {job.name} fails: {job.num_pipelines} pipelines x {job.num_slots} slots")
    command(replan, "plan", str(job_path), "--fail", node, "-o", str(folder / "plan.json"))

    heading("2. The same as a service")
    with serving(replan, folder) as url:
        document = parse_document(job_path.read_text(encoding="utf-8"), format="yaml")
        request = {"job": document, "failures": {"fail": [node]}}
        summary, location = post_plan(url, request)
        print(f"  status {summary['status']}, period {summary['period_us'] / 1e6:.6g} s, gap {percent(summary['gap'])}")
        print(f"  keeps {percent(summary['throughput_kept'])} of the fault-free throughput")
        plan_path = folder / "fetched-plan.json"
        plan_path.write_bytes(get(url, location))

        if not summary["reroutes"]:
            raise DemoError(f"the plan moves no microbatch although {node} is down")
        helper = summary["reroutes"][0]["runs_on"]
        heading(f"3. Worker {helper} takes over microbatches of another pipeline; it fetches its program")
        program = json.loads(get(url, f"{location}/programs/{helper}"))
        show_program(program, summary["reroutes"])
    print("  the service has stopped cleanly")

    heading("4. The plan that came over HTTP passes every check again, and holds the same program")
    command(replan, "validate", str(plan_path))
    text = command(replan, "program", str(plan_path), "--worker", helper, "--json", show_output=False)
    if json.loads(text) != program:
        raise DemoError(f"the service and `replan program` give different programs for worker {helper}")
    print("  the programs are equal")


def command(*words: str, show_output: bool = True) -> str:
    """Run a command, show it, and return what it printed."""
    print(f"  $ {shlex.join(['replan', *words[1:]])}", flush=True)
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=COMMAND_TIMEOUT_S)
    if done.returncode != 0:
        raise DemoError(f"the command ended with status {done.returncode}:\n{done.stderr.rstrip()}")
    if show_output:
        print("".join(f"  {line}\n" for line in done.stdout.splitlines()), end="")
    return done.stdout


@contextmanager
def serving(replan: str, folder: Path) -> Iterator[str]:
    """Run the service on a free port of this machine, give its URL, and stop it at the end."""
    words = [replan, "serve", "--port", "0", "--store", str(folder / "plans.db"), "--json"]
    print(f"  $ {shlex.join(['replan', *words[1:]])}", flush=True)
    output, log = folder / "serve.out", folder / "serve.log"
    with output.open("wb") as out, log.open("wb") as err:
        server = subprocess.Popen(words, stdout=out, stderr=err)
    try:
        url = wait_for_url(server, output, log)
        print(f"  listening on {url}; waiting until a solver process is warm", flush=True)
        wait_until_ready(server, url, log)
        yield url
        server.terminate()
        status = server.wait(SERVER_STOP_TIMEOUT_S)
        if status != 0:
            raise DemoError(f"the service ended with status {status}:\n{log.read_text()[-2000:]}")
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()


def wait_for_url(server: subprocess.Popen[bytes], output: Path, log: Path) -> str:
    """URL that the service prints once it listens."""
    give_up = time.monotonic() + SERVER_START_TIMEOUT_S
    while time.monotonic() < give_up and server.poll() is None:
        text = output.read_text()
        if text.rstrip().endswith("}"):
            return str(json.loads(text)["url"])
        time.sleep(0.05)
    raise DemoError(f"the service did not start:\n{log.read_text()[-2000:]}")


def wait_until_ready(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Wait until the service can make plans."""
    give_up = time.monotonic() + SERVER_START_TIMEOUT_S
    while time.monotonic() < give_up and server.poll() is None:
        try:
            get(url, "/readyz")
        except DemoError:
            time.sleep(0.1)
        else:
            return
    raise DemoError(f"the service did not get ready:\n{log.read_text()[-2000:]}")


def post_plan(url: str, document: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Ask for a plan; gives its summary and the path it is found at."""
    print("  POST /v1/plans", end="", flush=True)
    body = json.dumps(document).encode()
    request = urllib.request.Request(f"{url}/v1/plans", body, {"Content-Type": "application/json"})
    with opened(request) as answer:
        print(f" -> {answer.status} {answer.reason}, Location {answer.headers['Location']}")
        return json.loads(answer.read()), answer.headers["Location"]


def get(url: str, path: str) -> bytes:
    """Bytes at a path of the service."""
    with opened(urllib.request.Request(url + path)) as answer:
        content: bytes = answer.read()
    if path != "/readyz":
        print(f"  GET {path} -> {answer.status} {answer.reason}, {len(content):,} bytes")
    return content


@contextmanager
def opened(request: urllib.request.Request) -> Iterator[Any]:
    """Answer to a request; an error answer is told with what it says."""
    try:
        with _OPENER.open(request, timeout=COMMAND_TIMEOUT_S) as answer:
            yield answer
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")
        raise DemoError(f"{request.get_method()} {request.full_url} was answered {error.code}: {text}") from error


def show_program(program: dict[str, Any], reroutes: list[dict[str, Any]]) -> None:
    """Print the beginning and the end of a program, and what it does for others."""
    for reroute in reroutes:
        if reroute["runs_on"] == program["worker"]:
            print(
                f"  pipeline {reroute['home']}: it runs {reroute['microbatches']} of its microbatches besides its own"
            )
    instructions = program["instructions"]
    if not instructions:
        raise DemoError(f"the program of worker {program['worker']} is empty")
    head = instructions[:NUM_SHOWN_INSTRUCTIONS]
    tail = instructions[NUM_SHOWN_INSTRUCTIONS:][-2:]
    for line in (*head, f"... {len(instructions) - len(head) - len(tail)} more ...", *tail):
        print(f"      {line}")


def heading(text: str) -> None:
    """Print the title of a step."""
    print(f"\n{text}", flush=True)


def percent(share: float | None) -> str:
    """Share as text."""
    return "unknown" if share is None else f"{100 * share:.2f} %"


if __name__ == "__main__":
    sys.exit(main())
