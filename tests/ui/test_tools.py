"""The page beside runs, in Chromium: chat with a model, look at data, plan placements, keep presets, queue a run, ranks and GPUs."""
import json
import os
import re
import signal
import subprocess
import time

import browser
from serving import TINY
from support.chat_model import write_model, write_tokenizer
from support.lockstep import LOCKSTEP, ROOT, write_config


def test_chat_with_two_models(page, served):
    model = write_model(served.folder / "model")
    page.goto(served.url + "/chat?two=1")
    for label in ("First model", "Second model"):
        pane = page.get_by_label(label, exact=True)
        pane.get_by_placeholder("a Hugging Face folder").fill(str(model))
        pane.get_by_label("Temperature").fill("0")
        pane.get_by_role("button", name="Load").click()
        pane.get_by_text("Loaded. Say something below.").wait_for(timeout=60_000)
    page.get_by_label("What to say").fill("Hello?")
    page.keyboard.press("Enter")
    answers = []
    for label in ("First model", "Second model"):
        pane = page.get_by_label(label, exact=True)
        pane.get_by_role("button", name="Forget the conversation").wait_for()
        page.wait_for_function("label => !document.querySelector(`[aria-label='${label}'] .caret`)", arg=label, timeout=60_000)
        answers.append(pane.locator(".message.assistant p").inner_text())
    assert answers[0] == answers[1] != "", "the same model says the same at temperature 0"
    browser.picture(page, "chat")
    assert browser.violations(page) == []
    # Another folder is refused in the program's own words.
    pane = page.get_by_label("First model", exact=True)
    pane.get_by_placeholder("a Hugging Face folder").fill(str(served.folder / "nothing"))
    pane.get_by_role("button", name="Load").click()
    assert "there is no such folder" in pane.get_by_role("alert").inner_text()


def test_what_a_model_sees_of_data(page, served):
    model = write_tokenizer(served.folder / "seen")
    records = [{"messages": [{"role": "user", "content": f"Question {number}"}, {"role": "assistant", "content": "An answer " * (number % 5 + 1)}]} for number in range(40)]
    (served.folder / "chat.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    page.goto(served.url + "/data")
    page.get_by_label("Data", exact=True).fill(str(served.folder / "chat.jsonl"))
    page.get_by_label("Tokenizer").fill(str(model))
    page.get_by_label("Sequence length").fill("256")
    page.get_by_role("button", name="Inspect").click()
    samples = page.get_by_label("Samples")
    samples.wait_for(timeout=60_000)
    trained = "".join(samples.locator("article").first.locator("mark").all_inner_texts())
    assert "An answer" in trained and "Question" not in trained
    browser.picture(page, "data")
    assert browser.violations(page) == []


def test_placements_are_planned(page, served):
    page.goto(served.url + "/plan")
    page.locator("form select").select_option("llama-3.1-8b")
    page.get_by_role("button", name="Plan", exact=True).click()
    table = page.get_by_label("Placements")
    table.wait_for()
    rows = table.get_by_role("row").all_inner_texts()
    assert len(rows) == 5 and "✕" in rows[1] and "✓" in rows[4], rows
    browser.picture(page, "plan")
    assert browser.violations(page) == []


def test_the_machine_is_checked(page, served):
    page.goto(served.url + "/check")
    page.get_by_role("button", name="Quick look").click()
    page.get_by_role("status").wait_for(timeout=60_000)
    assert page.get_by_label("programs", exact=True).get_by_text("is LibTorch there, of the right version").is_visible()
    browser.picture(page, "check")
    assert browser.violations(page) == []


def test_presets_are_kept(page, served):
    page.goto(served.url + "/new")
    page.locator("#field-trainer-learning_rate").fill("0.0123")
    page.get_by_label("Name of a preset").fill("mine")
    page.get_by_role("button", name="Keep", exact=True).click()
    page.get_by_role("button", name="Delete this preset").wait_for()
    page.get_by_role("button", name="Clear").click()
    assert page.locator("#field-trainer-learning_rate").input_value() == ""
    page.get_by_label("Begin with").select_option("nano")
    page.get_by_text("a new model").first.wait_for()
    page.get_by_label("Begin with").select_option("mine")
    assert page.locator("#field-trainer-learning_rate").input_value() == "0.0123"


def test_a_run_waits_for_its_turn(page, served):
    served.begin("ahead", trainer__max_steps="200000")
    served.wait_for("ahead", lambda run: run["state"] == "running")
    page.goto(served.url)
    page.evaluate("values => sessionStorage.setItem('new-run', JSON.stringify(values))", {**TINY, "name": "behind", "trainer.max_steps": "10"})
    page.goto(served.url + "/new")
    page.get_by_role("button", name="Queue").click()
    page.get_by_text("It begins when no other run trains").wait_for()
    time.sleep(2)
    assert served.json("GET", "/api/runs/behind")["state"] == "waiting"
    # Another one thinks better of it.
    page.goto(served.url)
    page.evaluate("values => sessionStorage.setItem('new-run', JSON.stringify(values))", {**TINY, "name": "leaves", "trainer.max_steps": "10"})
    page.goto(served.url + "/new")
    page.get_by_role("button", name="Queue").click()
    page.get_by_role("button", name="Leave the queue").click()
    page.get_by_role("heading", name="Runs").wait_for()
    assert "leaves" not in [run["name"] for run in served.json("GET", "/api/runs")]
    served.json("POST", "/api/runs/ahead/ask", {"wish": "stop"}, 202)
    assert served.wait_for("behind", lambda run: run["state"] == "complete")["step"] == 10
    # One that has done all its steps goes on where it is told until when.
    page.goto(served.url + "/runs/behind")
    on = page.get_by_role("button", name="Train on")
    assert on.is_disabled()
    page.get_by_label("Step to train on to").fill("14")
    on.click()
    assert served.wait_for("behind", lambda run: run["state"] == "complete" and run["step"] > 10)["step"] == 14


def test_the_rank_that_the_others_wait_for_is_shown(page, served):
    """From what a real launcher and real ranks write: rank 1 gets its batches late."""
    config = write_config(served.folder, trainer={"max_steps": 100000, "log_interval": 2, "lr_schedule": "constant"})
    fault = {"LOCKSTEP_TEST_FAULT": "rank=1 action=slow phase=reading_data step=1 until=1000000 ms=60", "OMP_NUM_THREADS": "1"}
    run = subprocess.Popen([LOCKSTEP, "train", "-f", config, "--output", served.output, "--name", "late", "--device", "cpu", "--ranks", "2", "--threads", "1", "--headless"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **fault}, cwd=ROOT)
    try:
        served.wait_for_run("late")
        page.goto(served.url + "/runs/late")
        ranks = page.get_by_label("Ranks", exact=True)
        ranks.get_by_text("holds the others up").first.wait_for(timeout=60_000)
        # On a busy machine another part, or the other rank, may be late in one step or another: the page shows the last one.
        ranks.get_by_text(re.compile(r"Rank 1 holds the others up by [\d.]+ m?s a step \(\d+ %\), most of it in data\.")).wait_for(timeout=60_000)
        ranks.get_by_text("Its batches come late").wait_for(timeout=60_000)  # the launcher's own reason
        # Rank 1 reads data, rank 0 waits for it.
        page.wait_for_function("""() => {
            const shares = [...document.querySelectorAll(".strip")].map(one => [...one.children].map(part => part.getBoundingClientRect().width / one.getBoundingClientRect().width));
            return document.body.innerText.match(/rank 1\\s*⚠ slowest/) && shares[1][0] > 0.3 && shares[0][0] < 0.3 && shares[0][3] > 0.3 && shares[1][3] < 0.3;
        }""", timeout=60_000)
        browser.picture(page, "late")
        assert browser.violations(page) == []
    finally:
        run.send_signal(signal.SIGTERM)
        run.wait(60)


def test_gpus_are_shown(page, served):
    """What launchers write of GPUs (docs/monitoring.md): one is hot, and shared with another process."""
    folder = served.output / "measured"
    (folder / "monitor").mkdir(parents=True)
    lines = [{"event": "started", "step": 0, "time": "2026-01-01T00:00:00Z"}, {"event": "model", "total_steps": 100, "parameters": 1000, "backend": "nccl"}]
    for step in range(1, 61):
        lines.append({"step": step, "loss": 4 - step / 30, "grad_norm": 1.0, "learning_rate": 1e-3, "tokens": 1000 * step, "tokens_per_second": 1e5, "step_seconds": 0.1,
                      "data_seconds": 0.001, "communication_seconds": 0.002, "memory_bytes": [60 << 30, 61 << 30], "mfu": 0.41, "time": f"2026-01-01T00:00:{step % 60:02}Z",
                      "rank_seconds": {"data": [0.001, 0.001], "forward": [0.03, 0.03], "backward": [0.03, 0.03], "communication": [0.03, 0.03], "optimizer": [0.009, 0.009], "checkpoint": [0, 0], "other": [0, 0]}})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    gpus = [{"gpu": 0, "utilization": 0.98, "memory_bytes": 71 << 30, "power_watts": 690, "temperature": 64, "clock_mhz": 1755, "throttle": [], "others": 0},
            {"gpu": 1, "utilization": 0.91, "memory_bytes": 71 << 30, "power_watts": 540, "temperature": 83, "clock_mhz": 1200, "throttle": ["software_thermal"], "others": 1}]
    (folder / "monitor" / "machine-0.jsonl").write_text(
        json.dumps({"event": "machine", "host": "box", "machine": 0, "gpus": [{"gpu": n, "ranks": [n], "name": "NVIDIA H100", "memory_bytes": 80 << 30} for n in (0, 1)]}) + "\n"
        + json.dumps({"seconds": 12.0, "gpus": gpus, "ranks": [{"rank": 0, "phase": "backward"}, {"rank": 1, "phase": "reading_data"}]}) + "\n")
    page.goto(served.url + "/runs/measured")
    page.get_by_label("Ranks", exact=True).wait_for()
    shown = page.get_by_label("GPUs of box").inner_text()
    assert "throttled by temperature: 1.20 GHz" in shown and "91 %" in shown and "1 other process" in shown
    browser.picture(page, "ranks")
    assert browser.violations(page) == []
