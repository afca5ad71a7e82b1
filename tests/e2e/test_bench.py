"""`lockstep bench` and `lockstep plan` on a CPU, with tiny shapes: what they print can be parsed and is plausible. No time is judged."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

from support.lockstep import LOCKSTEP, ROOT, train, write_config


def call(*args, timeout=120, env=None):
    return subprocess.run([str(LOCKSTEP), *map(str, args)], capture_output=True, text=True, cwd=ROOT, timeout=timeout, env={**os.environ, **(env or {})})


def lines_of(*args, **kwargs):
    done = call(*args, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def assert_spread(spread):
    assert 0 < spread["min"] <= spread["median"] <= spread["max"]


@pytest.fixture(scope="module")
def step():
    return lines_of("bench", "step", "--model", "nano", "--seq", 16, "--batch", 2, "--accumulation", 2, "--steps", 5, "--warm-up", 1, "--device", "cpu", "--json")[0]


def test_step_numbers_fit_together(step):
    for name in ("step_seconds", "micro_batch_seconds", "update_seconds"):
        assert_spread(step[name])
    assert len(step["raw_step_seconds"]) == 5 and min(step["raw_step_seconds"]) == step["step_seconds"]["min"]
    assert (step["seq_len"], step["batch_size"], step["accumulation"], step["dtype"]) == (16, 2, 2, "f32")
    assert step["tokens_per_second"] == pytest.approx(16 * 2 * 2 / step["step_seconds"]["median"])
    micro_batches = 524288 / (16 * 2)
    seconds = micro_batches * step["micro_batch_seconds"]["median"] + step["update_seconds"]["median"]
    assert step["tokens_per_second_update_every_524288"] == pytest.approx(524288 / seconds)
    flops = step["tokens_per_second"] * step["flops_per_token"]
    assert step["share_of_measured_matmul"] == pytest.approx(flops / step["ceilings"]["flops_per_second"])
    assert step["mfu"] is None  # no maker states a dense peak for a CPU
    assert step["peak_memory_bytes"] > 16 * step["parameters"]  # weights, gradients and two moments in f32


def test_step_says_what_it_measured(step):
    done = call("bench", "step", "--model", "models/nano.yaml", "--seq", 16, "--batch", 1, "--steps", 2, "--warm-up", 1, "--device", "cpu", "--dtype", "bf16")
    assert done.returncode == 0, done.stderr
    for words in ("nano, 9.8M parameters, bf16", "2 steps after 1", "update every 16 tokens", "update every 524288 tokens", "MFU", "operations a token"):
        assert words in done.stdout, done.stdout


def test_every_kernel_has_a_rate_and_a_share():
    result = lines_of("bench", "kernels", "--model", "nano", "--seq", 16, "--batch", 2, "--device", "cpu", "--json")[0]
    names = [kernel["name"] for kernel in result["kernels"]]
    for name in ("rms_norm forward", "rms_norm backward", "rope forward", "rope backward", "swiglu forward", "swiglu backward", "embedding forward",
                 "embedding backward", "cross_entropy", "adamw", "sum_of_squares", "attention forward", "attention backward", "attention packed forward",
                 "attention packed backward", "matmul qkv forward", "matmul head weight gradient"):
        assert name in names
    assert result["ceilings"]["bytes_per_second"] > 0 and result["ceilings"]["flops_per_second"] > 0
    for kernel in result["kernels"]:
        assert_spread(kernel["seconds"])
        amount = kernel["bytes"] if kernel["limit"] == "bandwidth" else kernel["flops"]
        ceiling = result["ceilings"]["bytes_per_second" if kernel["limit"] == "bandwidth" else "flops_per_second"]
        assert amount > 0 and kernel["rate"] == pytest.approx(amount / kernel["seconds"]["median"])
        assert kernel["share"] == pytest.approx(kernel["rate"] / ceiling)
    qkv = next(kernel for kernel in result["kernels"] if kernel["name"] == "matmul qkv forward")
    assert qkv["flops"] == 2 * 32 * 384 * (384 + 2 * 2 * 64)
    attention = {kernel["name"]: kernel["flops"] for kernel in result["kernels"] if kernel["name"].startswith("attention")}
    assert attention["attention forward"] == 2 * 2 * 2 * 6 * 16 * 16 / 2 * 64  # 2 sequences, 6 heads of 64
    assert attention["attention packed forward"] == attention["attention forward"] / 4
    assert attention["attention packed backward"] == 2.5 * attention["attention packed forward"]


def test_step_shows_where_the_time_went(tmp_path):
    common = ["bench", "step", "--model", "nano", "--seq", 16, "--batch", 1, "--steps", 1, "--warm-up", 0, "--device", "cpu", "--profile", 2]
    result = lines_of(*common, "--json", env={"TMPDIR": str(tmp_path)})[0]
    assert result["profile"]["steps"] == 2
    trace = pathlib.Path(result["profile"]["trace"])
    assert trace.parent.parent == tmp_path and trace.parent.name.startswith("lockstep-profile-")
    names = [event["name"] for event in json.loads(trace.read_text())["traceEvents"] if "name" in event]
    blocks = sum(name == "block 0 forward" for name in names)
    assert blocks == 2, sorted(set(names))[:50]

    done = call(*common, "--profile-folder", tmp_path / "here")
    assert done.returncode == 0, done.stderr
    table = (tmp_path / "here" / "step.txt").read_text()
    assert table in done.stdout and str(tmp_path / "here" / "step.json") in done.stdout
    header, rest = table.split("\n\n", 1)
    assert header.startswith("2 steps on cpu: ")
    rows = [line.split(maxsplit=3) for line in rest.split("\n\nby range\n")[0].splitlines()[1:]]
    assert rows and sum(float(row[1].rstrip("%")) for row in rows) == pytest.approx(100, abs=0.1 * len(rows))
    assert any(row[3].startswith("aten::") for row in rows)


@pytest.mark.parametrize("backend", ["gloo", "cpu"])
def test_collectives_over_sizes(backend):
    results = lines_of("bench", "comm", "--ranks", 2, "--sync-backend", backend, "--sizes", "1K..16K", "--device", "cpu", "--json")
    assert [(r["operation"], r["bytes"]) for r in results] == [
        (operation, size) for size in (1024, 4096, 16384) for operation in ("all_reduce", "all_gather", "reduce_scatter", "broadcast")]
    share = {"all_reduce": 2 * 1 / 2, "all_gather": 1 / 2, "reduce_scatter": 1 / 2, "broadcast": 1}
    for result in results:
        assert result["ranks"] == 2 and result["calls"] >= 1 and result["seconds"] > 0
        assert result["algorithm_bytes_per_second"] == pytest.approx(result["bytes"] / result["seconds"])
        assert result["bus_bytes_per_second"] == pytest.approx(result["algorithm_bytes_per_second"] * share[result["operation"]])


def test_nothing_is_left_behind(tmp_path):
    done = call("bench", "comm", "--ranks", 2, "--sizes", "1K,4K", "--device", "cpu", env={"TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert "all_reduce" in done.stdout and "bus" in done.stdout
    assert not list(tmp_path.glob("lockstep-bench-*"))


@pytest.mark.parametrize("arguments,words", [
    (["bench"], "subcommand"),
    (["bench", "step"], "--model"),
    (["bench", "step", "--model", "nanoo"], "Did you mean nano?"),
    (["bench", "step", "--model", "nano", "--dtype", "f8"], "--dtype"),
    (["bench", "step", "--model", "nano", "--steps", "0"], "--steps"),
    (["bench", "step", "--model", "nano", "--profile", "0"], "--profile"),
    (["bench", "comm", "--sizes", "1G..1K"], "--sizes"),
    (["bench", "comm", "--ranks", "1"], "--ranks"),
    (["plan"], "measured step"),
    (["plan", "-f", "nano"], "measured step"),
    (["plan", "--step-seconds", "1"], "which model"),
    (["plan", "-f", "nano", "--step-seconds", "1", "--link", "nvlnk"], "Did you mean nvlink?"),
    (["plan", "--from", "models/nano.yaml"], "summary.json"),
])
def test_mistakes_are_named(arguments, words):
    done = call(*arguments)
    assert done.returncode == 2 and words in done.stderr, done.stdout + done.stderr


def test_plan_from_a_benchmark_and_from_a_run(step, tmp_path):
    saved = tmp_path / "step.json"
    saved.write_text(json.dumps(step))
    plan = lines_of("plan", "--from", saved, "--gpus", 8, "--link", "pcie4", "--json")[0]
    assert plan["step_seconds"] == step["step_seconds"]["median"] and plan["accumulation"] == 2
    assert plan["gradient_bytes"] == 4 * step["parameters"]
    assert [p["gpus"] for p in plan["predictions"]] == [1, 2, 4, 8]
    assert plan["predictions"][0]["speed_up"] == 1
    for p in plan["predictions"]:
        assert p["speed_up"] <= p["gpus"] and p["efficiency"] == pytest.approx(p["speed_up"] / p["gpus"])

    run = train(tmp_path, "one", write_config(tmp_path, trainer={"max_steps": 3}), "--ranks", "1")
    done = call("plan", "--from", run.folder / "summary.json", "--gpus", "4")
    assert done.returncode == 0, done.stderr
    assert "A prediction, not a measurement" in done.stdout and "2 (N-1)/N" in done.stdout


def test_plan_takes_the_models_gradients():
    plan = lines_of("plan", "-f", "qwen2.5-0.5b", "--step-seconds", "0.2", "--json")[0]
    assert plan["gradient_bytes"] == 2 * 494032768  # bf16
    faster = lines_of("plan", "-f", "qwen2.5-0.5b", "--step-seconds", "0.2", "--link", "ethernet-100", "--bandwidth", "360", "--latency", "3", "--json")[0]
    assert faster["predictions"] == plan["predictions"]


def test_baseline_reads_our_model_files():
    """The yardstick trains the same shape: without torch's model code, the section is read as the file says."""
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        from hf_baseline import model_shape
    finally:
        sys.path.pop(0)
    shape = model_shape(ROOT / "models" / "llama-3.2-1b.yaml")
    assert (shape["hidden_size"], shape["kv_heads"], shape["vocab_size"], shape["norm_eps"], shape["tie_embeddings"]) == (2048, 8, 128256, 1e-5, True)
    assert model_shape(ROOT / "models" / "qwen2.5-0.5b.yaml")["qkv_bias"] is True


def test_no_script_hides_a_module_of_python():
    """A script's folder comes first where its neighbours look for modules."""
    scripts = {path.stem for path in (ROOT / "bench").glob("*.py")}
    assert scripts and not scripts & set(sys.stdlib_module_names)
