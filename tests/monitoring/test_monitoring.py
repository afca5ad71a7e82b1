"""What a run says of itself, read by those it is said for: TensorBoard, Weights & Biases, Prometheus, `lockstep watch` and `lockstep runs`."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import statistics
import struct
import subprocess
import termios
import time
import urllib.request
import xml.etree.ElementTree

import pytest

from support.lockstep import LOCKSTEP, ROOT, lines_of, write_config
from support.network import free_port

PARTS = ["data", "forward", "backward", "communication", "optimizer", "checkpoint", "other"]
SLOW_MS = 60


def lockstep(*words, code=0, **environment):
    done = subprocess.run([LOCKSTEP, *map(str, words)], capture_output=True, text=True, timeout=60, cwd=ROOT, env={**os.environ, **environment})
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stdout + done.stderr


def monitor_cpu_seconds(pid):
    """Of the launcher's threads that watch, by the kernel's count of nanoseconds."""
    seconds = []
    for task in os.listdir(f"/proc/{pid}/task"):
        if open(f"/proc/{pid}/task/{task}/comm").read().strip() == "monitor":
            seconds.append(int(open(f"/proc/{pid}/task/{task}/schedstat").read().split()[0]) * 1e-9)
    return sum(seconds) if seconds else None


def in_a_terminal(command, until, keys=b"", seconds=300, columns=100, environment={}):
    """All that a program writes to a terminal of its own until that holds, then what it still says after these keys; and its exit code."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.environ.update(COLUMNS=str(columns), NO_COLOR="1", **{"TERM": "xterm", **environment})
        os.execv(command[0], list(map(str, command)))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    out, deadline, pressed = b"", time.monotonic() + seconds, False
    try:
        while time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.2)[0]:
                out += os.read(terminal, 65536)
            if not pressed and until(out.decode(errors="replace")):
                pressed = True
                os.write(terminal, keys)
    except OSError:  # it has ended
        pass
    assert pressed, out.decode(errors="replace")[-2000:]
    return out.decode(errors="replace"), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def resized_terminal(command):
    """What a live screen shows after its window was made 40 columns narrow: long before its next look."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.environ.update(NO_COLOR="1", TERM="xterm")
        os.execv(command[0], list(map(str, command)))
    out, deadline, narrow = b"", time.monotonic() + 120, False
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    while time.monotonic() < deadline and not (narrow and b"\033[J" in out):
        if select.select([terminal], [], [], 0.2)[0]:
            out += os.read(terminal, 65536)
        if not narrow and b"\033[J" in out:
            time.sleep(0.3)
            out, narrow = b"", True
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 40, 0, 0))
    os.kill(pid, signal.SIGTERM)
    os.waitpid(pid, 0)
    return out.decode(errors="replace")


class Watched:
    """A run of two ranks whose second one gets its batches late, looked at from all sides while it trains, then stopped."""

    def __init__(self, folder):
        self.port = free_port()
        config = write_config(folder, trainer={"max_steps": 100000, "log_interval": 2, "save_interval": 40, "max_checkpoints": 1, "lr_schedule": "constant"},
                              monitor={"tensorboard": True})
        environment = {**os.environ, "LOCKSTEP_TEST_FAULT": f"rank=1 action=slow phase=reading_data step=1 until=1000000 ms={SLOW_MS}"}
        self.folder = folder / "watched"
        self.process = subprocess.Popen([LOCKSTEP, "train", "-f", config, "--output", folder, "--name", "watched", "--device", "cpu", "--ranks", "2",
                                         "--threads", "1", "--wandb", "--wandb-project", "stories", "--prometheus-port", str(self.port)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=ROOT)
        try:
            self.wait_for(lambda: any("loss" in line for line in lines_of(self.folder / "metrics.jsonl")), 60)
            self.wait_for(lambda: self.straggler_events(), 60)
            self.scraped = self.scrape("/metrics")
            self.wait_for(self.sees_the_straggler, 60)
            self.live, self.live_code = in_a_terminal([str(LOCKSTEP), "watch", self.folder, "--interval", "0.2"], lambda out: out.count("\033[H") > 3, b"q")
            self.narrow = resized_terminal([str(LOCKSTEP), "watch", self.folder, "--interval", "30"])
            self.dumb, _ = in_a_terminal([str(LOCKSTEP), "watch", self.folder, "--interval", "0.2"], lambda out: out.count("\n") > 2, b"\x03", environment={"TERM": "dumb"})
            self.cpu_seconds = monitor_cpu_seconds(self.process.pid)
            self.listed = json.loads(lockstep("runs", "list", "--json", "--output", folder))["runs"]
            self.readings_before_the_end = len([line for line in lines_of(self.folder / "monitor" / "machine-0.jsonl") if "event" not in line])
        finally:
            self.process.send_signal(signal.SIGTERM)
            self.out, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, self.out
        self.steps = [line for line in lines_of(self.folder / "metrics.jsonl") if "loss" in line]
        self.monitor = lines_of(self.folder / "monitor" / "machine-0.jsonl")

    def wait_for(self, what, seconds):
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline and self.process.poll() is None, "it did not come"
            time.sleep(0.1)

    def sees_the_straggler(self):
        """On a screen, which shows the last step: on a busy machine another rank may be late in one."""
        self.screen = lockstep("watch", self.folder, "--once")
        return "rank 1 holds the others up" in self.screen

    def straggler_events(self):
        return [line for line in lines_of(self.folder / "monitor" / "machine-0.jsonl") if line.get("event") == "straggler"]

    def scrape(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return answer.headers["Content-Type"], answer.read().decode()


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    return Watched(tmp_path_factory.mktemp("monitoring"))


def test_parts_of_a_step_add_up_and_the_slowed_rank_is_named(watched):
    saves = [line for line in watched.steps if line["rank_seconds"]["checkpoint"][0] > 0]
    assert saves and len(saves) < len(watched.steps)
    # In the middle of all lines: a busy machine holds a rank up in one step or another, and in any part of it.
    lines = [line for line in watched.steps[1:] if line not in saves]
    assert all(list(line["rank_seconds"]) == PARTS and all(len(ranks) == 2 for ranks in line["rank_seconds"].values()) for line in watched.steps)
    seconds = {part: [statistics.median(line["rank_seconds"][part][rank] for line in lines) for rank in (0, 1)] for part in PARTS}
    for rank in (0, 1):
        shares = [sum(line["rank_seconds"][part][rank] for part in PARTS) / line["step_seconds"] for line in lines]
        assert statistics.median(shares) == pytest.approx(1, rel=0.1)
    assert seconds["data"][1] >= SLOW_MS * 1e-3 and seconds["data"][0] < SLOW_MS * 1e-3 / 2
    assert seconds["communication"][0] > seconds["communication"][1]
    named = [line["straggler"] for line in watched.steps if "straggler" in line]
    late = [straggler for straggler in named if (straggler["rank"], straggler["part"]) == (1, "data")]
    assert len(late) > len(watched.steps) / 2
    for line in watched.steps:  # whoever held the other up in these steps is the one that is named
        at_work = [sum(ranks[rank] for part, ranks in line["rank_seconds"].items() if part != "communication") for rank in (0, 1)]
        assert "straggler" not in line or line["straggler"]["rank"] == at_work.index(max(at_work)), line
    reductions = [step["collectives"]["all_reduce"] for step in watched.steps]
    assert all(one["calls"] >= 2 and one["bytes"] > 1000 and one["seconds"] is not None and one["seconds"] > 0 for one in reductions), reductions


def test_the_launcher_says_why(watched):
    event = watched.straggler_events()[0]
    assert (event["rank"], event["part"], event["reason"]) == (1, "data", "data")
    assert SLOW_MS * 1e-3 / 2 < event["seconds"] < max(line["step_seconds"] for line in watched.steps), "what a busy machine adds is its doing too"
    assert f"by {1000 * event['seconds']:.0f} ms a step" in event["text"]
    assert event["text"] in watched.out and "[launch] rank 1 holds the others up by" in watched.out


def test_the_monitor_file_has_each_second_of_each_rank(watched):
    machine, *rest = watched.monitor
    assert machine["event"] == "machine" and [rank["rank"] for rank in machine["ranks"]] == [0, 1]
    readings = [line for line in rest if "event" not in line]
    assert len(readings) >= 3
    gaps = [b["seconds"] - a["seconds"] for a, b in zip(readings, readings[1:-1])]
    assert sorted(gaps)[len(gaps) // 2] == pytest.approx(1, abs=0.2)
    last = readings[watched.readings_before_the_end - 1]  # later ones may find that a rank has left
    assert {rank["rank"] for rank in last["ranks"]} == {0, 1} and last["gpus"] == []
    assert all(rank["memory_bytes"] > 1e6 and 0 <= rank["starved"] <= 1 and rank["step"] > 1 for rank in last["ranks"])


def test_monitoring_costs_less_than_half_a_percent(watched):
    steps = sum(2 * line["step_seconds"] for line in watched.steps)
    assert watched.cpu_seconds is not None, "the launcher has no thread called monitor"
    assert watched.cpu_seconds < 0.005 * steps


def test_prometheus_reads_it(watched):
    parser = pytest.importorskip("prometheus_client.parser")
    kind, text = watched.scraped
    assert kind.startswith("text/plain; version=0.0.4")
    samples = {}
    for family in parser.text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    assert all(labels["run"] == "watched" for found in samples.values() for labels, _ in found)
    told = {line["step"]: line for line in watched.steps}
    ((_, step),) = samples["lockstep_steps_total"]
    assert samples["lockstep_loss"][0][1] == told[step]["loss"]
    parts = {(labels["rank"], labels["part"]): value for labels, value in samples["lockstep_rank_part_seconds"]}
    assert parts["1", "data"] == told[step]["rank_seconds"]["data"][1]
    assert len(samples["lockstep_rank_cpu_cores"]) == 2


def test_tensorboard_reads_it(watched):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

    def scalars(folder):
        events = accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0})
        events.Reload()
        return {tag: {event.step: event.value for event in events.Scalars(tag)} for tag in events.Tags()["scalars"]}

    found = scalars(watched.folder / "tensorboard")
    assert found["train/loss"] == pytest.approx({line["step"]: line["loss"] for line in watched.steps}, rel=1e-6)
    assert found["rank-1/data"] == pytest.approx({line["step"]: line["rank_seconds"]["data"][1] for line in watched.steps}, rel=1e-6)
    assert found["eval/loss"] if any("eval_loss" in line for line in lines_of(watched.folder / "metrics.jsonl")) else "eval/loss" not in found
    assert "process-0/memory_bytes" in scalars(watched.folder / "tensorboard" / "machine-0")


def test_wandb_reads_it(watched):
    datastore = pytest.importorskip("wandb.sdk.internal.datastore")
    from wandb.proto import wandb_internal_pb2

    (path,) = (watched.folder / "wandb").glob("offline-run-*/run-*.wandb")
    store = datastore.DataStore()
    store.open_for_scan(str(path))
    records = []
    while (data := store.scan_data()) is not None:
        records.append(wandb_internal_pb2.Record())
        records[-1].ParseFromString(data)
    assert [record.num for record in records] == list(range(1, len(records) + 1))
    (run,) = [record.run for record in records if record.WhichOneof("record_type") == "run"]
    assert path.name == f"run-{run.run_id}.wandb" and (run.display_name, run.project) == ("watched", "stories")
    settings = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert settings["trainer.learning_rate"] == 0.003 and settings["data.shuffle"] is True and settings["model.name"] == "tiny"
    history = {record.history.step.num: {item.key: json.loads(item.value_json) for item in record.history.item}
               for record in records if record.WhichOneof("record_type") == "history" and any(item.key == "train/loss" for item in record.history.item)}
    assert {step: row["train/loss"] for step, row in history.items()} == {line["step"]: line["loss"] for line in watched.steps}
    assert all(row["_step"] == step for step, row in history.items())
    assert records[-1].WhichOneof("record_type") == "exit" and records[-1].exit.exit_code == 0
    assert path.stat().st_size > 32768, "no record of this file goes over the end of a block"


def test_watch_shows_it_once(watched):
    assert re.search(r"^watched  training  ", watched.screen)
    assert re.search(r"\] \d+/100000  \d+%  ETA ", watched.screen)
    ranks = re.findall(r"^rank (\d) +([dfbcos.]+) ", watched.screen, re.M)
    assert [rank for rank, _ in ranks] == ["0", "1"]
    assert ranks[0][1].count("c") > ranks[0][1].count("d") and ranks[1][1].count("d") > ranks[1][1].count("c")
    assert "---- ranks/0.log" in watched.screen


def test_watch_is_live_in_a_terminal_and_gives_it_back(watched):
    assert watched.live_code == 0
    assert watched.live.startswith("\033[?1049h\033[?25l") and "\033[?25h\033[?1049l" in watched.live
    screens = watched.live.split("\033[H")[1:]
    assert len(screens) > 3 and all("watched  training" in screen for screen in screens)
    assert "watched  training" in watched.live.split("\033[?1049l")[1], "the last screen stays"


def test_watch_fits_a_window_that_becomes_narrow(watched):
    lines = re.sub(r"\033\[[0-9;]*[A-Za-z]", "", watched.narrow).replace("\r", "").split("\n")
    assert 3 < len(lines) <= 12 and all(len(line) <= 40 for line in lines), watched.narrow
    assert lines[0].startswith("watched  training")


def test_watch_says_lines_where_a_terminal_knows_no_screen(watched):
    assert "\033" not in watched.dumb and "watched  training  step " in watched.dumb


@pytest.mark.parametrize("settings, environment, code, says", [
    (["--prometheus-port", "70000"], {}, 2, "monitor.prometheus_port = 70000"),
    ([], {"LOCKSTEP_PROMETHEUS_PORT": "high"}, 2, "LOCKSTEP_PROMETHEUS_PORT=high is no port"),
    (["--prometheus-port", "TAKEN"], {}, 3, "of 127.0.0.1 cannot be used for Prometheus: Address already in use"),
    (["--prometheus-port", "1"], {"LOCKSTEP_PROMETHEUS_PORT": "TAKEN"}, 3, "of 127.0.0.1 cannot be used for Prometheus: Address already in use"),
])
def test_a_port_for_prometheus_that_cannot_be_is_told_before_ranks_start(tmp_path, settings, environment, code, says):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        environment = {**os.environ, **{name: value.replace("TAKEN", port) for name, value in environment.items()}}
        done = subprocess.run([LOCKSTEP, "train", "-f", write_config(tmp_path), "--output", tmp_path, "--name", "p", "--device", "cpu", "--ranks", "1",
                               *[word.replace("TAKEN", port) for word in settings]], capture_output=True, text=True, timeout=60, cwd=ROOT, env=environment)
    assert (done.returncode, says in done.stderr) == (code, True), done.stderr
    assert not list((tmp_path / "p").glob("ranks/*.log"))


def test_a_terminal_sees_a_bar_with_the_time_that_is_left(tmp_path):
    config = write_config(tmp_path, trainer={"max_steps": 40, "log_interval": 4})
    fault = {"LOCKSTEP_TEST_FAULT": "rank=0 action=slow phase=forward step=1 until=1000 ms=50"}
    os.environ.update(fault)
    try:
        out, code = in_a_terminal([str(LOCKSTEP), "train", "-f", config, "--output", tmp_path, "--name", "bar", "--device", "cpu", "--ranks", "1", "--threads", "1"],
                                  lambda out: "run folder:" in out)
    finally:
        del os.environ["LOCKSTEP_TEST_FAULT"]
    assert code == 0, out
    bars = re.findall(r"\r\x1b\[K  \[(#*)(\.*)\] (\d+)/40  loss [\d.]+  \S+ tok/s  ETA ([\d.]+) s", out)
    assert len(bars) > 5 and all(len(done + left) == 24 and len(done) == int(step) * 24 // 40 for done, left, step, _ in bars)
    remaining = [float(eta) for *_, eta in bars]
    assert remaining[0] > remaining[-1] and remaining[0] < 60
    assert "step 40/40  loss" in out


def test_runs_are_listed_and_plotted(watched, tmp_path):
    (run,) = watched.listed
    assert (run["name"], run["state"], run["total_steps"]) == ("watched", "training", 100000) and run["remaining_seconds"] > 0
    table = lockstep("runs", "--output", watched.folder.parent)
    assert re.search(r"^watched +stopped +\d+/100000 ", table, re.M)
    picture = tmp_path / "loss.svg"
    said = lockstep("runs", "plot", watched.folder, "--metric", "rank_seconds.data", "--smooth", "0.9", "-o", picture)
    assert said == f"{picture}: rank_seconds.data of 1 run, {len(watched.steps)} points\n"
    assert len(xml.etree.ElementTree.parse(picture).getroot().findall(".//{*}path")) == 2
    image = pytest.importorskip("PIL.Image")
    for words, curves in (([], 1), (["--smooth", "0.9"], 2)):
        lockstep("runs", "plot", watched.folder, *words, "-o", tmp_path / "loss.png")
        drawn = image.open(tmp_path / "loss.png")
        drawn.load()
        assert (drawn.size, drawn.mode) == ((1920, 1080), "RGB") and (tmp_path / "loss.png").stat().st_size < 2_000_000
        colors = {color: count for count, color in drawn.getcolors(1 << 24)}
        assert colors[0xff, 0xff, 0xff] > 1_700_000 and colors[0x00, 0x72, 0xb2] > 500, "a white page with a blue curve"
        assert colors[0xdd, 0xdd, 0xdd] > 2000 and colors[0x33, 0x33, 0x33] > 50, "with its grid and its title"
    assert "a picture is NAME.svg or NAME.png" in lockstep("runs", "plot", watched.folder, "-o", tmp_path / "loss.gif", code=2)
    assert "Did you mean loss?" in lockstep("runs", "plot", watched.folder, "--metric", "los", "-o", picture, code=2)
    assert "Did you mean watched?" in lockstep("watch", "wached", "--output", watched.folder.parent, code=2)


def test_runs_fit_a_narrow_terminal_and_one_that_knows_ascii_alone(watched):
    def table(columns, locale):
        command = f"stty cols {columns}; exec {LOCKSTEP} runs --output {watched.folder.parent}"
        out, code = in_a_terminal(["/bin/sh", "-c", command], lambda out: "watched" in out, columns=columns, environment={"LC_ALL": locale})
        assert code == 0
        return out.replace("\r", "").rstrip("\n").split("\n")

    wide, narrow, plain = table(200, "C.UTF-8"), table(48, "C.UTF-8"), table(200, "C")
    assert wide[0].split() == ["run", "state", "step", "loss", "evaluation", "speed", "lasted", "on", "disk", "started"] and re.search("[▁▂▃▄▅▆▇█]{8}", wide[1])
    assert narrow[0].split()[:4] == ["run", "state", "step", "loss"] and all(len(line) <= 48 for line in narrow), narrow
    assert all(line.isascii() for line in plain) and re.search(r"[_.:=+*#-]{8}", plain[1]), plain
    assert "started" in lockstep("runs", "--output", watched.folder.parent), "a pipe has all of it"
    assert lockstep("watch", watched.folder, "--once", LC_ALL="", LC_CTYPE="", LANG="de_DE.ISO-8859-1").isascii()


def test_watch_says_why_a_run_failed(tmp_path):
    config = write_config(tmp_path, trainer={"max_steps": 50})
    environment = {**os.environ, "LOCKSTEP_TEST_FAULT": "rank=1 action=kill phase=forward step=3"}
    subprocess.run([LOCKSTEP, "train", "-f", config, "--output", tmp_path, "--name", "dies", "--device", "cpu", "--ranks", "2", "--threads", "1"], capture_output=True, env=environment, cwd=ROOT, timeout=120)
    for words in (["--once"], []):  # a screen, and a line
        said = lockstep("watch", tmp_path / "dies", *words)
        assert "failed" in said and "rank 1" in said and "SIGKILL" in said, said
    (run,) = json.loads(lockstep("runs", "--json", "--output", tmp_path))["runs"]
    assert run["state"] == "failed" and "rank 1" in run["error"]
