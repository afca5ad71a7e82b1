"""The page's program without a browser: runs are started, watched, asked, resumed and deleted by what the page sends."""
import json
import os
import signal
import subprocess
import time

import pytest

from serving import TINY, Served
from support.lockstep import LOCKSTEP, ROOT, write_config


def lines_of(served, name):
    return [json.loads(line) for line in (served.output / name / "metrics.jsonl").read_text().splitlines()]


def test_a_run_from_the_form_to_three_ranks(served):
    name = served.begin("first", trainer__max_steps="4000")
    assert name == "first"
    served.wait_for(name, lambda run: run["state"] == "running" and run["step"] >= 12)
    assert served.request("POST", "/api/runs/first/ask", {"wish": "sample"})[0] == 202
    served.wait_for(name, lambda run: any(line.get("event") == "sample" for line in lines_of(served, name)))
    assert served.request("DELETE", "/api/runs/first")[0] == 400, "a run that trains is not deleted"
    served.json("POST", "/api/runs/first/ask", {"wish": "stop"}, 202)
    stopped = served.wait_for(name, lambda run: run["state"] == "stopped")
    assert stopped["resumable"] and stopped["checkpoints"] and stopped["ending"]["status"] == "stopped"
    changed = {one["key"]: one["value"] for one in stopped["settings"] if one["changed"]}
    assert changed["trainer.learning_rate"] == "0.003" and changed["parallel.ranks"] == "2"

    last = stopped["step"]
    served.json("POST", "/api/runs/first/resume", {"settings": {"parallel.ranks": "3", "trainer.max_steps": str(last + 5)}}, 202)
    done = served.wait_for(name, lambda run: run["state"] == "complete")
    assert done["step"] == last + 5 and done["ranks"] == [0, 1, 2]
    series = served.json("GET", "/api/runs/first/series?points=10")
    columns = series["columns"]
    assert len(columns["step"]) == 10 == len(columns["loss"]) and columns["step"][-1] == last + 5
    assert all(low <= mean <= high for low, mean, high in zip(columns["loss_least"], columns["loss"], columns["loss_most"]))
    assert [event["step"] for event in series["events"] if event["event"] == "started"] == [0, last]
    served.json("DELETE", "/api/runs/first")
    assert not (served.output / "first").exists() and served.request("GET", "/api/runs/first")[0] == 400


def test_a_killed_rank_is_reported_with_what_to_do(served):
    name = served.begin("dies", trainer__max_steps="100000")
    served.wait_for(name, lambda run: run["step"] >= 2)
    launcher = json.loads((served.output / ".ui" / "dies.start").read_text())["pid"]
    workers = subprocess.run(["pgrep", "-P", str(launcher)], capture_output=True, text=True).stdout.split()
    os.kill(int(workers[1]), signal.SIGKILL)
    failed = served.wait_for(name, lambda run: run["state"] == "failed")
    assert failed["ending"]["rank"] == 1 and "SIGKILL" in failed["ending"]["report"] and failed["ending"]["exit_code"] == 6
    assert failed["why_not_resumable"] == "it has no checkpoint: nothing was saved before it ended"


def test_a_start_that_fails_before_its_folder_is_told(served):
    (served.folder / "broken.jsonl").write_text("{not json\n")
    settings = {**TINY, "name": "broken", "data.kind": "records", "data.path": str(served.folder / "broken.jsonl"), "data.tokenizer": str(served.folder)}
    served.json("POST", "/api/runs", {"settings": settings}, 202)
    failed = served.wait_for("broken", lambda run: run["state"] == "failed")
    assert "tokenizer.json" in failed["reason"], failed["reason"]
    served.json("DELETE", "/api/runs/broken")


def test_runs_outlive_the_page(tmp_path):
    served = Served(tmp_path)
    try:
        served.begin("on", trainer__max_steps="100000")
        step = served.wait_for("on", lambda run: run["step"] >= 2)["step"]
        served.stop()
        served.start()
        served.wait_for("on", lambda run: run["state"] == "running" and run["step"] > step)
        served.json("POST", "/api/runs/on/ask", {"wish": "stop"}, 202)
        served.wait_for("on", lambda run: run["state"] == "stopped")
    finally:
        served.close()


@pytest.mark.parametrize("settings, key, says", [
    ({"trainer.learning_rate": "fast"}, "trainer.learning_rate", "trainer.learning_rate = fast must be a number"),
    ({"trainer.optimizer": "adamx"}, "trainer.optimizer", "Did you mean adamw?"),
    ({"trainer.batch_size": "5", "trainer.global_batch_size": "12"}, "trainer.batch_size", "trainer.global_batch_size"),
    ({"model.num_heads": "5"}, "model.hidden_size", "model.num_heads"),
    ({"name": "../up"}, "name", "must be a plain name"),
    ({"model.name": "../../up", "name": ""}, "model.name", "must be a name without /"),
    ({"data.path": "/etc/passwd"}, "data.path", "lies outside the folders that this page may use"),
    ({"output": "/tmp"}, "output", "this page's runs lie in"),
    ({"trainer.lr": "1"}, "", "trainer.lr is not a setting."),
])
def test_mistakes_stand_at_their_fields(served, settings, key, says):
    judged = served.json("POST", "/api/plan", {"settings": {**TINY, **settings}})
    assert "plan" not in judged
    assert any(says in error["text"] and (not key or key in error["keys"]) for error in judged["errors"]), judged["errors"]
    assert served.json("POST", "/api/runs", {"settings": {**TINY, **settings}}, 422)["errors"] == judged["errors"], "and nothing is started"


def test_the_plan_is_what_train_would_do(served):
    judged = served.json("POST", "/api/plan", {"settings": {**TINY, "name": "planned", "trainer.max_steps": "7", "trainer.lr_scaling": "linear"}})
    plan = judged["plan"]
    assert judged["errors"] == [] and plan["global_batch_size"] == 12 and plan["ranks"] == 2 and plan["learning_rate"] == pytest.approx(0.006)
    printed = subprocess.run([LOCKSTEP, *__import__("shlex").split(judged["command"])[1:], "--dry-run", "--headless"], cwd=served.folder, capture_output=True, text=True, timeout=60)
    told = json.loads(printed.stdout.splitlines()[0])
    for name in ("memory", "batch_size", "gradient_accumulation", "learning_rate", "backend", "parameters", "tokens_per_step", "run"):
        assert told[name] == plan[name], name


def test_every_setting_is_in_the_form(served):
    schema = {one["key"]: one for one in served.json("GET", "/api/settings")}
    shown = subprocess.run([LOCKSTEP, "config", "schema"], capture_output=True, text=True, cwd=ROOT).stdout
    sections = json.loads(shown)["properties"]
    for key, one in schema.items():
        here = sections
        for part in key.split("."):
            here = here[part] if part in here else here[part]
            here = here.get("properties", here)
        assert one["says"] and one["kind"], key
    assert len(schema) > 130
    # A new text option is either a file's name, which is kept inside the allowed folders, or is listed here as plain text.
    plain = {"name", "output", "model.name", "data.system_prompt", "monitor.sample_prompt", "parallel.master_addr", "monitor.sample_prompts", "data.roles",
             "lora.target_modules", "lora.modules_to_save", "lora.exclude_modules", "lora.rank_pattern", "lora.alpha_pattern"}
    texts = {key for key, one in schema.items() if one["kind"] in ("text", "texts") and not one["path"] and not key.endswith("_field")}
    assert texts == plain


def test_a_long_run_is_thinned_out(served):
    """100,000 steps: the program reads them once, and sends as many points as were asked for, with no spike lost."""
    folder = served.output / "long"
    folder.mkdir()
    with (folder / "metrics.jsonl").open("w") as out:
        out.write('{"event":"started","step":0,"time":"2026-01-01T00:00:00Z"}\n{"event":"model","total_steps":100000,"parameters":1}\n')
        for step in range(1, 100001):
            loss = 99.5 if step == 77777 else 3 - step / 1e5
            out.write(f'{{"step":{step},"loss":{loss},"learning_rate":0.001,"tokens":{step},"tokens_per_second":5,"step_seconds":1,"time":"2026-01-01T00:00:00Z"}}\n')
    columns = served.json("GET", "/api/runs/long/series?points=1000")["columns"]
    assert len(columns["loss"]) == 1000 and max(columns["loss_most"]) == 99.5
    near = served.json("GET", "/api/runs/long/series?points=1000&from=77770&to=77780")["columns"]
    assert near["step"] == list(range(77770, 77781)) and near["loss"][7] == 99.5
    begun = time.monotonic()
    served.json("GET", "/api/runs/long/series?points=1000")
    print(f"the second look took {time.monotonic() - begun:.3f} s")
