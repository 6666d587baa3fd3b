"""Steps that several tests of the page take."""

from __future__ import annotations

from tests.browser import Visit
from tests.jobs import ServedJob

DRAWN = "window.replan.view?.timeline?.charts.some((chart) => chart.gantt.buffer)"
_PRESSES = {"r": "ArrowRight", "d": "ArrowDown", "!": "Enter"}


def open_job(visit: Visit, job: str, query: str = "") -> None:
    """Go to a job's view and wait until all of it is there."""
    visit.open(f"#/jobs/{job}{query}")
    visit.until(DRAWN)
    visit.see("History", within="main")


def choose(visit: Visit, steps: str) -> None:
    """Choose a worker on the map by the keyboard: the first press is worker 0/0."""
    visit.page.locator("canvas.map").focus()
    for letter in steps:
        visit.page.keyboard.press(_PRESSES[letter])


def try_out(visit: Visit, button: str = "Fail") -> None:
    """Press a button of the what-if."""
    visit.page.get_by_role("button", name=button, exact=True).click()


def report(visit: Visit) -> None:
    """Declare what is tried, as one who has checked."""
    visit.page.get_by_role("button", name="(changes the live job)").click()
    visit.page.get_by_role("checkbox", name="It has happened").check()
    visit.page.get_by_role("button", name="Declare now").click()


def give_key(visit: Visit, key: str) -> None:
    """Give a key to the dialog that asks for one."""
    visit.page.get_by_label("API key", exact=True).fill(key)
    visit.page.get_by_role("button", name="Use it").click()


def acknowledge(job: ServedJob) -> None:
    """Let every live worker of a job's current epoch say that it has taken the plan."""
    body = job.current()
    for pipeline in range(3):
        for slot in range(4):
            worker = f"{pipeline}/{slot}"
            if worker not in body["failed_workers"]:
                path = f"{job.path}/epochs/{body['epoch']}/acknowledgements"
                assert job.client.post(path, json={"worker": worker}).is_success
