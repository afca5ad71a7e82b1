"""Numbers that long sums, threads and settings must not change."""
import array
import os
import subprocess

import pytest
import torch

from support.lockstep import LOCKSTEP, train, write_config
from support.network import free_port


def event(result, name="model"):
    return next(line for line in result.metrics() if line.get("event") == name)


def equal_samples(folder, count):
    """`count` samples of 16 tokens, all of them the same."""
    path = folder / "tokens.bin"
    path.write_bytes(array.array("I", [(7 * i * i + 3) % 67 for i in range(16)] * (count + 1)).tobytes())
    return {"kind": "bin", "path": str(path), "token_type": "u32", "validation_fraction": 0}


def grad_norm(folder, accumulation, *args):
    config = write_config(folder, f"{accumulation}.yaml", data=equal_samples(folder, 1024), checkpoint={"save_at_end": False},
                          trainer={"batch_size": 1, "gradient_accumulation": accumulation, "global_batch_size": accumulation, "max_steps": 1})
    # One thread: two that wait for each other a thousand times over take minutes where other programs have the cores.
    result = train(folder, f"run-{accumulation}", config, "--ranks", "1", "--threads", "1", "--dtype", "bf16", *args)
    return result.steps()[1]["grad_norm"], result


@pytest.mark.parametrize("adapters", [False, True])
def test_a_thousand_equal_micro_batches_are_one(tmp_path, adapters):
    args = ["lora.enabled=true", "lora.target_modules=all-linear"] if adapters else []
    one, alone = grad_norm(tmp_path, 1, *args)
    many, accumulated = grad_norm(tmp_path, 1024, *args)
    assert many == pytest.approx(one, rel=1e-2)
    assert event(accumulated)["gradients"] == "f32" and "  gradients      f32\n" in accumulated.out
    assert event(alone)["gradients"] == ("f32" if adapters else "bf16, one micro-batch per step")


@pytest.mark.parametrize("method", ["adamw", "adafactor", "muon"])
def test_ranks_with_different_threads_hold_the_same_weights(tmp_path, method):
    """As machines with different processors are. Matrices large enough that sums over them are shared between threads; weights are compared each step."""
    config = write_config(tmp_path, model={"hidden_size": 512, "num_layers": 1, "intermediate_size": 700},
                          trainer={"optimizer": method, "max_steps": 3, "global_batch_size": 4, "max_grad_norm": 0.1, "warmup_steps": 0})
    variables = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [subprocess.Popen([str(LOCKSTEP), "train", "-f", str(config), "--output", str(tmp_path), "--name", "run", "--device", "cpu", "--threads", str(rank + 1),
                               "parallel.check_divergence=1"], env={**os.environ, **variables, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(2)]
    words = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(words)


def test_deterministic_reaches_the_ranks_and_changes_nothing_on_a_cpu(tmp_path):
    config = write_config(tmp_path, trainer={"max_steps": 6})
    plain, twice = (train(tmp_path, name, config, "--ranks", "2", *args) for name, args in (("plain", []), ("deterministic", ["--deterministic"])))
    assert event(plain)["deterministic"] is False and event(twice)["deterministic"] is True
    assert plain.losses() == twice.losses()
    for name, tensor in plain.tensors(6).items():
        assert torch.equal(tensor, twice.tensors(6)[name]), name


@pytest.mark.parametrize("step,adapters", [(4, False), (6, False), (4, True)])
def test_replicas_are_compared_before_every_save(tmp_path, step, adapters):
    """Saves at 4 and, the last one, at 6; a rank drifts right before."""
    args = ["lora.enabled=true", "lora.target_modules=all-linear"] if adapters else []
    config = write_config(tmp_path, trainer={"max_steps": 6, "save_interval": 4})
    fault = {"LOCKSTEP_TEST_FAULT": f"rank=1 step={step} action=drift"}
    done = train(tmp_path, "run", config, "--ranks", "2", *args, env=fault, check=False)
    assert done.code == 6, done.text
    assert f"step {step}: the weights of rank 1 differ from rank 0's, first in " in done.text
    assert [path.name for path in sorted((done.folder / "checkpoints").glob("step-*"))] == ["step-000004"] * (step > 4)


def test_shards_are_compared_with_their_replicas(tmp_path):
    """Of two groups of two ranks: rank 3 holds what rank 1 holds."""
    config = write_config(tmp_path, trainer={"max_steps": 6, "save_interval": 4})
    done = train(tmp_path, "run", config, "--ranks", "4", "parallel.shard=full", "parallel.replicate=2", env={"LOCKSTEP_TEST_FAULT": "rank=3 step=4 action=drift"}, check=False)
    assert done.code == 6, done.text
    assert "step 4: the weights of rank 3 differ from rank 1's, first in " in done.text
    assert not list((done.folder / "checkpoints").glob("step-??????"))
