"""Makes docs/pictures: the page as it is now, in Chromium, over real runs on two CPU ranks. Some minutes; runs that FOLDER has are not made again:
LOCKSTEP_BUILD=build .deps-test/bin/python tests/docs/pictures.py FOLDER [NAME ...]"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "ui")]

from browser import Browser  # noqa: E402
from serving import Served  # noqa: E402
from support.lockstep import LOCKSTEP  # noqa: E402

NANO = ["-f", "models/nano.yaml", "--device", "cpu", "--ranks", "2", "--output", "runs", "--headless", "trainer.log_interval=1"]

STARTED: list[subprocess.Popen] = []  # what a picture needs alive, until it is taken


def train(name: str, *flags: str, env: dict | None = None, wait: bool = False):
    run = subprocess.Popen(["lockstep", "train", *NANO, "--name", name, *flags], executable=LOCKSTEP, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **(env or {})})
    if wait:
        run.wait()
    return run


def step_of(name: str) -> int:
    file = pathlib.Path("runs") / name / "metrics.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return max((json.loads(line).get("step", 0) for line in lines if '"loss"' in line), default=0)


def wait_for_step(name: str, step: int) -> None:
    while step_of(name) < step:
        time.sleep(0.2)


def run_picture(page, served):
    page.goto(served.url + "/runs/stories")
    page.locator(".sample").first.wait_for()


def new_run_picture(page, served):
    page.goto(served.url + "/new")
    page.get_by_label("Begin with").select_option("nano")
    page.get_by_label("Name of the run").fill("first-stories")
    page.get_by_text("--name first-stories").wait_for()
    page.evaluate("document.activeElement.blur(), scrollTo(0, 0)")


def runs_picture(page, served):
    page.set_viewport_size({"width": 1280, "height": 340})
    page.goto(served.url + "/")
    page.get_by_label("Compare stories", exact=True).check()
    page.get_by_label("Compare stories-fast").check()


def failed_picture(page, served):
    page.goto(served.url + "/runs/died")
    page.get_by_label("What went wrong").locator("summary").click()


def compare_picture(page, served):
    page.goto(served.url + "/compare?run=stories&run=stories-fast")
    page.get_by_text("trainer.learning_rate").wait_for()


def late_picture(page, served):
    shutil.rmtree("runs/late", ignore_errors=True)
    STARTED.append(train("late", "trainer.max_steps=100000", env={"LOCKSTEP_TEST_FAULT": "rank=1 action=slow phase=reading_data step=1 until=1000000 ms=300"}))
    wait_for_step("late", 12)
    page.goto(served.url + "/runs/late")
    page.get_by_text("Its batches come late").wait_for(timeout=90_000)
    return page.get_by_label("Ranks", exact=True)


def check_picture(page, served):
    page.goto(served.url + "/check")
    page.get_by_role("button", name="Check everything").click()
    page.get_by_text("All is well").or_(page.get_by_text("there are warnings")).wait_for(timeout=120_000)
    return page.get_by_label("ranks", exact=True)


def plot_picture(page, served):
    subprocess.run([LOCKSTEP, "runs", "plot", "stories", "stories-fast", "--smooth", "0.9", "-o", "loss.png"], check=True)
    page.goto((pathlib.Path.cwd() / "loss.png").as_uri())
    return page.locator("img")


# Which part of the page each shows; no element: the whole window.
PICTURES = {"run": run_picture, "new-run": new_run_picture, "runs": runs_picture, "failed": failed_picture, "compare": compare_picture, "late": late_picture,
            "check": check_picture, "plot": plot_picture}


def make_runs() -> None:
    for name, *flags in (["stories"], ["stories-fast", "trainer.learning_rate=0.005", "trainer.max_steps=60"]):
        if not pathlib.Path("runs", name, "summary.json").exists():
            train(name, *flags, wait=True)
    if pathlib.Path("runs/died/end.json").exists():
        return
    died = train("died", "trainer.save_interval=4")
    wait_for_step("died", 9)
    worker = subprocess.run(["pgrep", "-P", str(died.pid)], capture_output=True, text=True).stdout.split()[1]
    os.kill(int(worker), signal.SIGKILL)
    died.wait()


def main() -> None:
    folder, wanted = pathlib.Path(sys.argv[1]), sys.argv[2:] or list(PICTURES)
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)  # paths in pictures are short, and of no machine
    if not pathlib.Path("models").exists():
        pathlib.Path("models").symlink_to(ROOT / "models")
    make_runs()
    served, chrome = Served(pathlib.Path(".")), Browser()
    for name in wanted:
        page = chrome.window()
        part = PICTURES[name](page, served)
        page.wait_for_timeout(1500)
        (part or page).screenshot(path=str(ROOT / "docs" / "pictures" / f"{name}.png"))
        page.context.close()
        while STARTED:
            run = STARTED.pop()
            run.send_signal(signal.SIGTERM)
            run.wait()
    chrome.close()
    served.close()


if __name__ == "__main__":
    main()
