"""The page's program without a browser: runs are started, watched, asked, resumed and deleted by what the page sends."""
import http.client
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import time
import urllib.parse

import pytest

from serving import TINY, Served
from support.chat_model import write_tokenizer
from support.lockstep import LOCKSTEP, ROOT, lines_of


def test_a_run_from_the_form_to_three_ranks(served):
    name = served.begin("first", trainer__max_steps="1000000")
    assert name == "first"
    served.wait_for(name, lambda run: run["state"] == "running" and run["step"] >= 12)
    assert served.request("POST", "/api/runs/first/ask", {"wish": "sample"})[0] == 202
    served.wait_for(name, lambda run: any(line.get("event") == "sample" for line in lines_of(served.output / name / "metrics.jsonl")))
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

    newest = done["checkpoints"][-1]
    for body, says in (({"checkpoint": "step-999999"}, "has no checkpoint step-999999"), ({"checkpoint": "../../up"}, "has no checkpoint"), ({"checkpoint": newest["name"], "merge": True}, "there is no adapter to merge")):
        assert says in served.json("POST", "/api/runs/first/export", body, 400)["error"]
    path = served.json("POST", "/api/runs/first/export", {"checkpoint": newest["name"]}, 202)["path"]
    assert "is being made already" in served.json("POST", "/api/runs/first/export", {"checkpoint": newest["name"]}, 400)["error"]
    assert served.request("DELETE", "/api/runs/first")[0] == 409, "what is being exported is not deleted"
    (exported,) = served.wait_for(name, lambda run: run["exports"][0]["state"] == "done")["exports"]
    assert exported["path"] == path == str(served.output / "first" / "exports" / newest["name"])
    assert json.loads((served.output / "first" / "exports" / newest["name"] / "config.json").read_text())["hidden_size"] == 32
    assert "is there already" in served.json("POST", "/api/runs/first/export", {"checkpoint": newest["name"]}, 400)["error"]
    served.json("DELETE", "/api/runs/first")
    assert not (served.output / "first").exists() and served.request("GET", "/api/runs/first")[0] == 400


def test_an_adapter_is_merged_and_a_merge_that_fails_is_explained(served):
    served.begin("base", trainer__max_steps="1")
    served.json("POST", "/api/runs/base/export", {"checkpoint": served.wait_for("base", lambda run: run["state"] == "complete")["checkpoints"][-1]["name"]}, 202)
    model = pathlib.Path(served.wait_for("base", lambda run: run["exports"][0]["state"] == "done")["exports"][0]["path"])
    settings = {"lora__enabled": "true", "lora__rank": "2", "model__path": str(model), "trainer__max_steps": "2", "data__seq_len": "16"}
    own = {key: "" for key in TINY if key.startswith("model.")}
    served.json("POST", "/api/runs", {"settings": {**TINY, **own, "name": "lora", **{key.replace("__", "."): value for key, value in settings.items()}}}, 202)
    checkpoint = served.wait_for("lora", lambda run: run["state"] == "complete")["checkpoints"][-1]["name"]
    ask = {"checkpoint": checkpoint, "merge": True}
    (model / "model.safetensors").rename(model / "away")
    served.json("POST", "/api/runs/lora/export", ask, 202)
    failed = served.wait_for("lora", lambda run: [one for one in run["exports"] if one["state"] == "failed"])["exports"]
    assert "model.safetensors" in failed[-1]["text"] and failed[-1]["command"].startswith("lockstep export --run "), failed
    (model / "away").rename(model / "model.safetensors")
    served.json("POST", "/api/runs/lora/export", ask, 202)
    made = served.wait_for("lora", lambda run: [one["state"] for one in run["exports"]] == ["done", "done"])["exports"]
    assert [one["name"] for one in made] == [f"{checkpoint}-adapter", f"{checkpoint}-merged"]
    assert (served.output / "lora" / "exports" / f"{checkpoint}-merged" / "model.safetensors").stat().st_size > 1000


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
    ({"lora.adapters": ",,,"}, "lora.adapters", "lies outside the folders that this page may use"),
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
    printed = subprocess.run([LOCKSTEP, *shlex.split(judged["commands"][0]["command"])[1:], "--dry-run", "--headless"], cwd=served.folder, capture_output=True, text=True, timeout=60)
    told = json.loads(printed.stdout.splitlines()[0])
    for name in ("memory", "batch_size", "gradient_accumulation", "learning_rate", "backend", "parameters", "tokens_per_step", "run"):
        assert told[name] == plan[name], name


def test_an_epoch_is_counted_beside_the_form(served):
    write_tokenizer(served.folder / "words")
    data = served.folder / "counted.jsonl"
    data.write_text("".join(json.dumps({"text": f"Record {number}. " + "word " * number}) + "\n" for number in range(50)))
    settings = {**TINY, "name": "counted", "model.vocab_size": "260", "data.kind": "records", "data.path": str(data), "data.tokenizer": str(served.folder / "words"), "trainer.num_epochs": "3", "data.too_long": "cut"}
    first = served.json("POST", "/api/plan", {"settings": settings})
    assert first["errors"] == [] and first["plan"]["epoch"]["counting"] and "steps" not in first["plan"], "whoever types does not wait"
    deadline = time.monotonic() + 60
    while (judged := served.json("POST", "/api/plan", {"settings": settings}))["plan"]["epoch"]["counting"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    told = json.loads(subprocess.run([LOCKSTEP, *shlex.split(judged["commands"][0]["command"])[1:], "--dry-run", "--headless"], cwd=served.folder, capture_output=True, text=True, timeout=60).stdout.splitlines()[0])
    epoch = judged["plan"]["epoch"]
    assert told["steps"] == judged["plan"]["steps"] == 3 * epoch["steps"] and epoch["steps"] == -(-epoch["samples"] // 12)
    limited = served.json("POST", "/api/plan", {"settings": {**settings, "trainer.num_epochs": "", "trainer.max_steps": "10"}})["plan"]
    assert limited["epoch"]["epochs"] == pytest.approx(10 / epoch["steps"]) and limited["steps"] == 10
    data.write_text("{broken\n")
    while (judged := served.json("POST", "/api/plan", {"settings": settings}))["plan"]["epoch"]["counting"]:
        assert time.monotonic() < deadline
    assert "counted.jsonl" in judged["plan"]["epoch"]["mistake"]


def stream_events(served, **asked):
    """Server-sent events as they come: (event, data)."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)
    connection.request("GET", f"/api/stream?{urllib.parse.urlencode(asked)}")
    answer = connection.getresponse()
    event = ""
    while line := answer.readline().decode():
        line = line.rstrip("\n")
        if line.startswith("event: "):
            event = line[7:]
        elif line.startswith("data: "):
            yield event, json.loads(line[6:])


def test_of_five_hundred_runs_only_what_changes_is_told(tmp_path):
    served = Served(tmp_path)
    try:
        for number in range(500):
            folder = served.output / f"run-{number:03}"
            folder.mkdir()
            steps = "".join(f'{{"step":{step},"loss":{4 - step / 100},"time":"2026-01-01T00:00:{step % 60:02}Z"}}\n' for step in range(1, 101))
            (folder / "metrics.jsonl").write_text('{"event":"started","step":0,"time":"2026-01-01T00:00:00Z"}\n' + steps)
        begun = time.monotonic()
        assert len(served.json("GET", "/api/runs")) == 500
        print(f"the first list of 500 runs took {time.monotonic() - begun:.2f} s")
        while any(one["bytes"] is None for one in served.json("GET", "/api/runs")):  # are counted as time allows
            time.sleep(0.1)
        events = (one for one in stream_events(served) if one[0] in ("runs", "changed"))
        event, runs = next(events)
        assert event == "runs" and len(runs) == 500
        with (served.output / "run-123" / "metrics.jsonl").open("a") as out:
            out.write('{"step":101,"loss":1.5,"time":"2026-01-01T00:02:00Z"}\n')
        event, news = next(events)
        assert event == "changed" and [(card["name"], card["step"], card["loss"]) for card in news["cards"]] == [("run-123", 101, 1.5)] and news["names"][0] == "run-123"
        shutil.rmtree(served.output / "run-007")
        event, news = next(events)
        assert event == "changed" and news["cards"] == [] and len(news["names"]) == 499 and "run-007" not in news["names"]
    finally:
        served.close()


def reads_of(served) -> int:
    """How often the page's program has read from a file or a socket."""
    return int(re.search(r"syscr: (\d+)", open(f"/proc/{served.process.pid}/io").read())[1])


def ended_run(folder, name, data="stories") -> None:
    (folder / name).mkdir(parents=True)
    lines = [{"event": "started", "step": 0, "time": "2026-01-01T00:00:00Z"}, {"event": "model", "total_steps": 1, "data": data}, {"step": 1, "loss": 2.5}]
    (folder / name / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / name / "end.json").write_text(json.dumps({"status": "failed", "exit_code": 6, "report": "It died.\nIn many words."}))


def test_runs_that_have_ended_are_not_read_again(tmp_path):
    """Some thousands of them cost an open page nothing but a look at their folders; and a change to any of them is still seen."""
    served = Served(tmp_path)
    try:
        for number in range(400):
            ended_run(served.output, f"run-{number:03}")
        state = served.json("GET", "/api/state")
        assert len(state["runs"]) == 400
        while any(one["bytes"] is None for one in served.json("GET", "/api/runs")):
            time.sleep(0.1)
        state = served.json("GET", "/api/state")
        events = (one for one in stream_events(served, known=state["mark"]) if one[0] == "changed")
        ended_run(served.output, "late")
        assert any(card["name"] == "late" for card in next(events)[1]["cards"])
        time.sleep(4)  # what has just changed is looked into once more
        before = reads_of(served)
        time.sleep(3)
        read = reads_of(served) - before
        print(f"{read} reads in 3 s beside 401 runs that have ended")
        assert read < 200
        (served.output / "run-321" / "end.json").write_text(json.dumps({"status": "complete", "exit_code": 0}))
        os.utime(served.output / "run-321")  # as a file that is put there by renaming does
        for _, news in events:
            if any((card["name"], card["state"]) == ("run-321", "complete") for card in news["cards"]):
                break
        # Whoever knows the list is told what is newer; whoever knows that of another program is told so.
        mark = served.json("GET", "/api/state")["mark"]
        ended_run(served.output, "later")
        news = next(data for event, data in stream_events(served, known=mark) if event == "changed")
        assert [card["name"] for card in news["cards"]] == ["later"] and news["names"][0] == "later" and news["mark"] != mark
        served.stop()
        served.start()
        assert next(stream_events(served, known=mark)) == ("stale", {})
    finally:
        served.close()


def test_a_list_of_any_size_is_shown(tmp_path):
    """Longer than what a stream may have waiting: it comes with the page's state, and changes come as ever."""
    served = Served(tmp_path)
    try:
        for number in range(120):
            ended_run(served.output, f"run-{number:03}", data="x" * 100_000)
        state = served.json("GET", "/api/state")
        assert len(state["runs"]) == 120 and state["runs"][0]["reason"] == "It died."
        while any(one["bytes"] is None for one in state["runs"]):  # each is news, once it is counted
            time.sleep(0.1)
            state = served.json("GET", "/api/state")
        events = stream_events(served, known=state["mark"])
        ended_run(served.output, "late")
        while (event := next(events))[0] != "changed":
            pass
        assert event[1]["names"][0] == "late"
        for known in ("", state["mark"].rpartition("-")[0] + "-0"):  # all is news to both, and too much for a stream
            assert next(one for one in stream_events(served, known=known))[0] == "stale"
    finally:
        served.close()


def test_odd_metrics_are_read_as_far_as_they_go(served):
    """NaN, cut off lines, other kinds, numbers beyond reason, steps that go back, a clock that is set back, bytes that are no text."""
    folder = served.output / "odd"
    folder.mkdir()
    lines = [b'{"event":"started","step":0,"time":"2026-01-01T00:00:00Z"}', b'{"event":"model","total_steps":1e300,"parameters":-1e300}',
             b'{"step":1,"loss":4.0,"time":"2026-01-01T00:00:10Z"}', b'{"step":2,"loss":NaN,"time":"2026-01-01T00:00:11Z"}', b'{"step":2,"loss":null,"time":"2026-01-01T00:00:11Z"}',
             b'{"step":3,"loss":1e999,"time":"x"}', b'{"step":3,"loss":"high","time":7}', b'{"step":"four","loss":1}', b'\xff\xfe\x00', b"[1,2]", b"", b'{"step":4,"loss":9.5', b'{"step":5,"loss":3.0,"time":"2025-12-31T00:00:00Z"}',
             b'{"step":9,"loss":2.0,"time":"2026-01-01T00:00:20Z"}', b'{"step":6,"loss":2.5,"time":"2026-01-01T00:00:30Z"}', b'{"event":{"a":1}}', b'{"eval_loss":"low","step":6}', b'{"step":7,"loss":1.']
    lines += [json.dumps({"event": "sample", "step": number, "prompt": "p", "text": f"sample {number}"}).encode() for number in range(3000)]
    (folder / "metrics.jsonl").write_bytes(b"\n".join(lines[:17] + lines[18:]) + b"\n" + lines[17])
    run = served.json("GET", "/api/runs/odd")
    assert run["step"] == 6 and run["loss"] == 2.5 and run["total_steps"] == 9e15
    series = served.json("GET", "/api/runs/odd/series?points=100")
    columns = series["columns"]
    assert columns["step"] == [1, 2, 3, 5, 6] and columns["loss"] == [4.0, None, None, 3.0, 2.5] == columns["loss_least"]
    assert columns["seconds_since_start"] == sorted(columns["seconds_since_start"]) and all(len(column) == 5 for column in columns.values())
    samples = [event["text"] for event in series["events"] if event["event"] == "sample"]
    assert samples[-1] == "sample 2999" and len(series["events"]) <= 2000 and series["events"][0]["event"] == "started"
    assert [one for one in served.json("GET", "/api/runs") if one["name"] == "odd"][0]["state"] == "killed"


def test_runs_of_any_name_are_shown(served):
    """`lockstep train --name` takes names that the form would not: they are runs all the same."""
    for name in ("my run", "größe 7+1", "50% & <b>", "a" * 200):
        folder = served.output / name
        folder.mkdir()
        (folder / "metrics.jsonl").write_text('{"event":"started","step":0,"time":"2026-01-01T00:00:00Z"}\n{"step":1,"loss":2.0}\n')
        assert name in [run["name"] for run in served.json("GET", "/api/runs")]
        assert served.json("GET", "/api/runs/" + urllib.parse.quote(name, safe=""))["step"] == 1
        served.json("DELETE", "/api/runs/" + urllib.parse.quote(name, safe=""))
        assert not folder.exists()
    for name in (".ui", "..", "a/b", "a\\b", "-x", "a\n", ""):
        assert served.request("GET", "/api/runs/" + urllib.parse.quote(name, safe=""))[0] in (400, 404), name
    os.mkdir(os.fsencode(served.output) + b"/\xff\xfe")
    served.json("GET", "/api/runs")


def test_a_machine_is_known_after_hours(served):
    folder = served.output / "hours" / "monitor"
    folder.mkdir(parents=True)
    (folder.parent / "metrics.jsonl").write_text('{"event":"started","step":0}\n')
    with (folder / "machine-0.jsonl").open("w") as out:
        out.write('{"event":"machine","host":"box","gpus":[{"gpu":0,"ranks":[0],"name":"NVIDIA H200","memory_bytes":150754820096}]}\n')
        out.writelines(f'{{"seconds":{second}.0,"gpus":[{{"gpu":0,"utilization":0.5}}],"ranks":[]}}\n' for second in range(5000))
    (machine,) = served.json("GET", "/api/runs/hours/machines")
    assert machine["machine"]["gpus"][0]["name"] == "NVIDIA H200" and machine["last"]["seconds"] == 4999
    with (folder / "machine-0.jsonl").open("a") as out:
        out.write('{"seconds":5000.0,"gpus":[]}\n{"event":"straggler","rank":1,"text":"rank 1"}\n{"seconds":5001.0,"gp')
    (machine,) = served.json("GET", "/api/runs/hours/machines")
    assert machine["last"]["seconds"] == 5000 and machine["straggler"]["rank"] == 1 and machine["machine"]["host"] == "box"


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
    plain = {"name", "output", "model.name", "data.system_prompt", "monitor.sample_prompt", "parallel.master_addr", "monitor.sample_prompts", "monitor.wandb_project", "data.roles",
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
