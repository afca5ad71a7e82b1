"""`lockstep bench step --link`: one rank of many, the others and their links modelled. No time is judged."""
import json

import pytest

from check.test_check import TWO_GPUS, stub
from e2e.test_bench import assert_spread, call, lines_of


@pytest.mark.parametrize("ranks,link,settings", [(8, "infinite", ["parallel.shard=full"]), (8, "nvlink8", ["parallel.shard=optimizer"]), (2, "pcie4x16", []),
                                                 (32, "nvlink8+ib400", ["parallel.shard=full", "parallel.replicate=4"])])
def test_a_rank_of_many_behind_a_modelled_link(ranks, link, settings):
    step = lines_of("bench", "step", "--model", "nano", "--seq", 16, "--batch", 2, "--steps", 2, "--warm-up", 1, "--device", "cpu", "--json", "--ranks", ranks, "--link", link,
                    *settings)[0]
    assert step["ranks"] == ranks and f"one of {ranks} ranks, the others and their links modelled: {link}" in step["modelled"]
    assert ("between machines of 8" in step["modelled"]) == (ranks > 8) and ("no time at all" in step["modelled"]) == (link == "infinite")
    assert_spread(step["step_seconds"])


def test_a_link_is_set_beside_none_and_beside_its_plan():
    words = ["bench", "step", "--model", "nano", "--seq", 16, "--batch", 2, "--steps", 3, "--warm-up", 1, "--device", "cpu", "--ranks", 16, "--link", "nvlink8+ethernet-100", "--baseline",
             "parallel.shard=full", "parallel.replicate=2"]
    infinite, step = lines_of(*words, "--json")
    assert infinite["link"] == "infinite" and infinite["baseline_seconds"] is None and step["link"] == "nvlink8+ethernet-100"
    assert step["baseline_seconds"] == pytest.approx(infinite["step_seconds"]["median"], rel=1e-5) and step["planned_seconds"] > step["baseline_seconds"]
    said = call(*words).stdout
    assert said.index("planned for each of 16 ranks") < said.index("where links take no time") < said.index("of the speed it has where the link takes no time")
    assert "sums between replicas" in said and "in tensors" in said


def test_a_baseline_starts_a_plan(tmp_path):
    step = lines_of("bench", "step", "--model", "nano", "--seq", 16, "--batch", 2, "--steps", 2, "--warm-up", 1, "--device", "cpu", "--json", "--ranks", 8, "--link", "infinite",
                    "parallel.shard=full")[0]
    (tmp_path / "step.json").write_text(json.dumps(step))
    plan = json.loads(call("plan", "-f", "nano", "--from", tmp_path / "step.json", "--gpus", 32, "--link", "nvlink8+ib400", "--json", "parallel.shard=full").stdout)
    assert plan["step_seconds"] == step["step_seconds"]["median"] and plan["between_machines"]["name"] == "ib400"
    within, between = plan["predictions"][3], plan["predictions"][5]
    assert (within["gpus"], between["gpus"]) == (8, 32) and between["communication_seconds"] > 4 * within["communication_seconds"]


def test_a_timeline_tells_what_a_step_waits_for(tmp_path):
    trace = tmp_path / "step.json"
    step = lines_of("bench", "step", "--model", "nano", "--seq", 16, "--batch", 2, "--steps", 1, "--warm-up", 1, "--device", "cpu", "--json", "--ranks", 8, "--link", "ethernet-100",
                    "parallel.shard=full", "model.num_layers=5", "--timeline", trace)[0]
    kinds = step["timeline"]["collectives"]
    # Embedding, head and 5 layers; backward gathers again the 3 that are not there any more. The first two come with the update before: they
    # may end in this step or in that one, and nothing hides the last reduction.
    gathers, sums = kinds["all_gather"], kinds["reduce_scatter"]
    assert abs(gathers["operations"] - (7 + 3)) <= 2 and sums["operations"] == 7
    assert gathers["exposed"] <= gathers["waits"] and 0 < sums["exposed"] <= sums["waits"] and sums["exposed_seconds"] < step["step_seconds"]["max"] * 3
    events = json.loads(trace.read_text())["traceEvents"]
    lanes = {event["args"]["name"]: event["tid"] for event in events if event["ph"] == "M"}
    assert {"step", "blocks", "waits", "all_gather", "reduce_scatter"} <= lanes.keys()
    spans = {lane: [event for event in events if event["ph"] == "X" and event["tid"] == row] for lane, row in lanes.items()}
    assert len(spans["all_gather"]) == gathers["operations"] and len(spans["waits"]) >= gathers["waits"]
    for row in spans.values():
        assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-3 for a, b in zip(row, row[1:])), "a lane does one thing at a time"


@pytest.mark.parametrize("words,expected", [(["--ranks", 8], "go together"), (["--link", "nvlink8"], "go together"), (["--baseline"], "--baseline is what a link is set beside"),
                                            (["--ranks", 8, "--link", "infinite", "--baseline"], "--baseline is what a link is set beside"), (["--ranks", 8, "--link", "nvlnk"], "Did you mean nvlink"),
                                            (["--ranks", 3, "--link", "infinite", "parallel.shard=full", "parallel.replicate=2"], "2 groups of ranks cannot be made of 3 ranks")])
def test_links_that_cannot_be_modelled(words, expected):
    done = call("bench", "step", "--model", "nano", "--device", "cpu", *words)
    assert done.returncode == 2 and expected in done.stderr, done.stderr
    assert "[plan]" not in done.stderr and "--bandwidth" not in done.stderr, "a flag of another verb"


def test_the_names_of_links_are_those_of_the_help():
    done = call("bench", "step", "--model", "nano", "--device", "cpu", "--ranks", 8, "--link", "nvlnk8")
    assert done.returncode == 2 and done.stderr.startswith("[bench] --link nvlnk8 is not one of nvlink8, pcie4x16, infinite, ") and "Did you mean nvlink8?" in done.stderr, done.stderr


def test_what_is_planned_fits_the_gpu(tmp_path):
    """What blocks keep follows from the device's memory. There is no GPU behind the stub, so nothing is measured."""
    said = {}
    for size in (80, 4):
        env = stub(tmp_path, TWO_GPUS + f"*.memory {size << 30}\n")
        done = call("bench", "step", "--model", "qwen2.5-0.5b", "--batch", 8, "--seq", 2048, "--steps", 1, "--warm-up", 0, "--ranks", 8, "--link", "nvlink8", "parallel.shard=full",
                    env=env)
        said[size] = next(line for line in done.stdout.splitlines() if "activations: " in line).split("activations: ")[1]
    assert said[80] != said[4], said
