"""The disk under the page fills up: it says so in words, goes on serving, and when there is room again nothing was lost."""
import contextlib
import json
import os
import pathlib
import shutil
import signal

import pytest

import browser
from serving import TINY, Served
from support.full_disk import fill

pytestmark = pytest.mark.skipif(os.getuid() != 0 or not shutil.which("unshare"), reason="a small disk needs root and unshare")
FULL = "No space left on device"
AXOLOTL = "base_model: there\nadapter: lora\nlora_r: 16\nlearning_rate: 0.0002\nmicro_batch_size: 2\nflash_attention: true\n"


class OnSmallDisk(Served):
    """A page whose runs lie on a disk of 24 MiB that only it and its children see."""

    def __init__(self, folder: pathlib.Path):
        (folder / "runs").mkdir()
        super().__init__(folder, prefix=("unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size=24m none {folder / "runs"} && exec "$@"', "sh"))
        self.disk = pathlib.Path(f"/proc/{self.process.pid}/root{folder / 'runs'}")  # seen from outside

    def fill(self) -> None:
        fill(self.disk / "filler")

    def close(self) -> None:
        for start in (self.disk / ".ui").glob("*.start"):
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(json.loads(start.read_text())["pid"], signal.SIGKILL)
        self.stop()


@pytest.fixture
def small(tmp_path):
    page = OnSmallDisk(tmp_path)
    yield page
    page.close()


def test_a_full_disk_is_told_and_nothing_is_lost(small):
    small.begin("on", trainer__max_steps="1000000", trainer__log_interval="50")
    small.wait_for("on", lambda run: run["step"] >= 50)
    small.json("POST", "/api/runs", {"settings": {**TINY, "name": "behind", "trainer.max_steps": "5"}, "queue": True}, 202)
    small.json("POST", "/api/presets/kept", {"settings": {"trainer.learning_rate": "0.5"}})
    listed = {one["name"] for one in small.json("GET", "/api/presets")}
    small.fill()

    # What needs no room works as before.
    assert small.request("GET", "/")[0] == 200
    assert {one["name"] for one in small.json("GET", "/api/presets")} == listed and "kept" in listed and "nano" in listed
    imported = small.json("POST", "/api/import", {"text": AXOLOTL})
    assert imported["program"] == "Axolotl" and imported["settings"]["lora.rank"] == "16"
    assert small.json("POST", "/api/placements", {"settings": {"model.hidden_size": "64"}, "gpus": 2})
    assert small.json("POST", "/api/plan", {"settings": TINY})["errors"] == []

    # What needs some is refused in words, and leaves nothing half done.
    for name in ("kept", "fresh"):
        told = small.json("POST", f"/api/presets/{name}", {"settings": {"trainer.learning_rate": "0.1"}}, 400)["error"]
        assert FULL in told and "Free some space" in told
    assert [one["settings"] for one in small.json("GET", "/api/presets") if one["own"]] == [{"trainer.learning_rate": "0.5"}]
    for body in ({"settings": {**TINY, "name": "third"}}, {"settings": {**TINY, "name": "third"}, "queue": True}):
        told = small.json("POST", "/api/runs", body, 400)["error"]
        assert "is full" in told or FULL in told, told
    assert FULL in small.json("POST", "/api/runs/on/ask", {"wish": "save"}, 400)["error"]
    assert not [path for path in small.disk.rglob("*.tmp")]
    assert {run["name"]: run["state"] for run in small.json("GET", "/api/runs")} == {"on": "running", "behind": "waiting"}

    # A run can be stopped all the same; the one that waits says why it still does.
    small.json("POST", "/api/runs/on/ask", {"wish": "stop"}, 202)
    small.wait_for("on", lambda run: run["state"] not in ("running", "starting"))
    waits = small.wait_for("behind", lambda run: "is full" in run["reason"])
    assert waits["state"] == "waiting" and "Free some" in waits["reason"]
    assert small.process.poll() is None

    (small.disk / "filler").unlink()
    assert small.wait_for("behind", lambda run: run["state"] == "complete")["step"] == 5
    small.json("POST", "/api/presets/fresh", {"settings": {"trainer.learning_rate": "0.1"}})
    small.begin("third", trainer__max_steps="3")
    small.wait_for("third", lambda run: run["state"] == "complete")
    steps = [line for line in (small.disk / "behind" / "metrics.jsonl").read_text().splitlines() if '"started"' in line]
    assert len(steps) == 1, "what waited began once"


def test_the_form_keeps_what_was_typed(small, page):
    page.goto(small.url + "/")
    page.evaluate("values => sessionStorage.setItem('new-run', JSON.stringify(values))", {**TINY, "name": "typed", "trainer.max_steps": "5"})
    page.goto(small.url + "/new")
    page.get_by_text("Effective batch").first.wait_for()
    small.fill()
    page.get_by_role("button", name="Start", exact=True).click()
    told = page.get_by_role("alert").filter(has_text="is full")
    told.wait_for()
    assert "Free some, for example by deleting runs" in told.inner_text() and "[ui]" not in told.inner_text()
    browser.picture(page, "full-disk")
    page.get_by_label("Name of a preset").fill("mine")
    page.get_by_role("button", name="Keep", exact=True).click()
    page.get_by_role("alert").filter(has_text=FULL).wait_for()
    (small.disk / "filler").unlink()
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_role("heading", name="typed").wait_for()
    assert small.wait_for("typed", lambda run: run["state"] == "complete")["step"] == 5
