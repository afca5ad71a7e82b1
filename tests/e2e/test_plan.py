"""`lockstep plan`: time from a measured step, memory from the settings, and commands that can be typed."""
import json

import pytest

from e2e.test_bench import call, lines_of, step  # noqa: F401
from support.lockstep import train, write_config


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


def test_memory_and_time_are_of_one_step():
    """Micro-batches come from the settings, or from the flag, for both halves; and ranks from the settings."""
    for args in (["trainer.gradient_accumulation=3"], ["--accumulation", 3]):
        done = call("plan", "-f", "nano", "--step-seconds", 1, "parallel.ranks=4", *args)
        assert "memory of each of 4 ranks" in done.stdout and "3 micro-batches per step" in done.stdout, done.stdout
        assert "one GPU's step: 1000.00 ms, 3 micro-batches" in done.stdout, done.stdout


def test_a_step_of_another_model_is_refused(step, tmp_path):
    saved = tmp_path / "step.json"
    saved.write_text(json.dumps(step))
    assert call("plan", "-f", "nano", "--from", saved).returncode == 0
    done = call("plan", "-f", "llama-3.1-8b", "--from", saved)
    assert done.returncode == 2 and "llama-3.1-8b has 8.0B" in done.stderr, done.stderr


def test_advice_is_a_command_that_a_shell_reads_back():
    """What a change replaces is not there twice, and names with blanks are quoted."""
    plan = lines_of("plan", "-f", "llama-3.1-8b", "--gpus", 1, "--memory", "40GiB", "lora.enabled=true", "trainer.recompute=none", "trainer.batch_size=2", "model.name=a b", "--json")[0]
    (change,) = plan["memory"]["changes"][:1]
    assert change["settings"] == ["trainer.recompute=auto"]
    assert change["command"] == "lockstep train -f llama-3.1-8b lora.enabled=true trainer.batch_size=2 'model.name=a b' trainer.recompute=auto"


def test_one_rank_is_not_advised_to_cut_nothing():
    plan = lines_of("plan", "-f", "llama-3.1-8b", "--gpus", 1, "--memory", "79GiB", "parallel.shard=optimizer", "lora.enabled=true", "trainer.batch_size=1", "--json")[0]["memory"]
    assert plan["fits"] and plan["changes"][0]["settings"] == []


def test_plan_takes_the_models_gradients():
    plan = lines_of("plan", "-f", "qwen2.5-0.5b", "--step-seconds", "0.2", "--json")[0]
    assert plan["gradient_bytes"] == 2 * 494032768  # bf16
    faster = lines_of("plan", "-f", "qwen2.5-0.5b", "--step-seconds", "0.2", "--link", "ethernet-100", "--bandwidth", "360", "--latency", "3", "--json")[0]
    assert faster["predictions"] == plan["predictions"]
