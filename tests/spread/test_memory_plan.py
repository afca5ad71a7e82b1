"""`lockstep plan` states a rank's memory by part without LibTorch; the buffers of a real run are of those sizes, to the byte."""
import json
import os
import re
import shlex
import subprocess

import pytest

from support.lockstep import LOCKSTEP, ROOT

SHAPE = ["model.hidden_size=64", "model.num_layers=3", "model.num_heads=4", "model.kv_heads=2", "model.intermediate_size=160", "model.vocab_size=1024",
         "model.max_seq_len=32", "trainer.batch_size=4"]
RUN = ["data.stories=200", "data.validation_fraction=0.2", "trainer.max_steps=1", "trainer.eval_batches=1", "trainer.target_device=cpu",
       "monitor.sample_tokens=0", "checkpoint.save_at_end=false"]
LORA = ["lora.enabled=true"]
CASES = {
    "plain": [],
    "bias, head norms, untied, no room where gate and up were": ["model.qkv_bias=true", "model.qk_norm=true", "model.tie_embeddings=false",
                                                                 "model.intermediate_size=64", "trainer.recompute=norms"],
    "bf16 and 8-bit states": ["model.dtype=bf16", "trainer.optimizer=adamw_8bit", "trainer.gradient_accumulation=2"],
    "bf16 states, no masters": ["model.dtype=bf16", "trainer.optimizer_states=bf16", "trainer.optimizer=lion", "trainer.recompute=qkv"],
    "LoRA": [*LORA, "trainer.recompute=blocks", "trainer.recompute_every=2"],
    "DoRA and a head trained whole": [*LORA, "lora.dora=true", "lora.modules_to_save=lm_head", "trainer.optimizer=muon"],
    "NF4": [*LORA, "model.load_in_4bit=true", "model.dtype=bf16", "trainer.recompute=blocks"],
    "NF4 with plain scales, qkv alone": [*LORA, "model.load_in_4bit=true", "model.double_quant=false", "lora.target_modules=q_proj,v_proj"],
    "norms behind their branches": ["model.family=olmo2", "model.qk_norm=true", "trainer.recompute=norms"],
    "norms behind their branches, everything recomputed": [*LORA, "model.family=olmo2", "model.qk_norm=true", "trainer.recompute=blocks"],
    "int8": [*LORA, "model.load_in_8bit=true", "trainer.optimizer=adafactor"],
}


SHARDS = {
    "optimizer": ["parallel.shard=optimizer", "trainer.gradient_accumulation=2"],
    "gradients, bf16": ["parallel.shard=gradients", "model.dtype=bf16", "trainer.gradient_accumulation=2"],
    "full, bf16, one micro-batch": ["parallel.shard=full", "model.dtype=bf16"],
    "full, Lion, untied": ["parallel.shard=full", "trainer.optimizer=lion", "model.tie_embeddings=false", "model.num_layers=4"],
    "full, LoRA": [*LORA, "parallel.shard=full"],
    "full, NF4": [*LORA, "parallel.shard=full", "model.load_in_4bit=true", "model.dtype=bf16"],
}


def plan(*args):
    done = subprocess.run([str(LOCKSTEP), "plan", *map(str, args)], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name,ranks", [*((name, 1) for name in CASES), *((name, 3) for name in SHARDS)])
def test_a_run_holds_what_was_planned(name, ranks, tmp_path):
    settings = SHAPE + (CASES | SHARDS)[name]
    empty = tmp_path / "empty.yaml"
    empty.write_text("model:\n  name: planned\n")
    done = subprocess.run([str(LOCKSTEP), "train", "-f", str(empty), *settings, *RUN, "--ranks", str(ranks), "--output", str(tmp_path), "--name", "run"],
                          capture_output=True, text=True, cwd=ROOT, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    memory = json.loads(plan("-f", empty, *settings, "monitor.sample_tokens=0", "--gpus", ranks, "--device", "cpu", "--json"))["memory"]
    held = json.loads((tmp_path / "run" / "summary.json").read_text())["memory"]["buffers"]
    assert held == memory["exact"], name
    parts = memory["exact"] | memory.get("at_most", {})
    assert memory["total"] == sum(parts.values()) - min(parts["logits"], parts.get("communication", 0))  # which take turns


def test_the_program_that_plans_knows_no_libtorch():
    linked = subprocess.run(["ldd", str(LOCKSTEP)], capture_output=True, text=True, check=True).stdout
    assert "libc." in linked and "libtorch" not in linked and "libc10" not in linked  # names: addresses may read c10 too


def test_a_model_for_eight_gpus():
    text = plan("-f", "models/large.yaml", "--gpus", 8)
    for words in ("memory of each of 8 ranks", "weights", "master weights", "gradients", "optimizer states", "activations", "communication", "in all"):
        assert words in text, text
    memory = json.loads(plan("-f", "models/large.yaml", "--gpus", 8, "--json"))["memory"]
    parameters = memory["parameters"]
    assert parameters == 8_030_261_248
    assert memory["exact"]["weights"] == 2 * parameters and memory["exact"]["master weights"] == 4 * parameters
    assert memory["exact"]["optimizer states"] == 8 * parameters
    tight = json.loads(plan("-f", "models/large.yaml", "--gpus", 8, "--memory", "141GB", "--json"))["memory"]
    assert tight["fits"] and tight["total"] <= 141e9 and tight["activations"] != memory["activations"]
    assert not json.loads(plan("-f", "models/large.yaml", "--gpus", 8, "--memory", "24GiB", "--json"))["memory"]["fits"]


# The rows of docs/performance.md, as they were measured. Packed records take what rows of one text take.
MEASURED = {name: row for name, row in json.loads((ROOT / "bench/measured/gpu.json").read_text())["rows"].items() if "summary" in row}
AS_SETTINGS = {"--recompute": "trainer.recompute={}", "--batch-size": "trainer.batch_size={}", "--seq-len": "data.seq_len={}", "--load-in-4bit": "model.load_in_4bit=true",
               "--fp8": "trainer.fp8=true"}
FREE_ON_AN_H200 = "139.8GiB"


def planned_for(command):
    """What `lockstep plan` takes of a row's `lockstep train`."""
    words = command.split()[2:]
    taken = []
    while words:
        word = words.pop(0)
        if word == "-f":
            taken += [word, words.pop(0)]
        elif word in AS_SETTINGS:
            taken.append(AS_SETTINGS[word].format(words.pop(0) if "{}" in AS_SETTINGS[word] else ""))
        elif "=" in word and not word.startswith("data.kind"):
            taken.append(word)
    return json.loads(plan(*taken, "--gpus", 1, "--memory", FREE_ON_AN_H200, "--json"))["memory"]


@pytest.mark.parametrize("name", MEASURED)
def test_a_gpu_allocated_what_is_planned(name):
    planned, summary = planned_for(MEASURED[name]["command"]), MEASURED[name]["summary"]
    took = summary["memory"]
    assert abs(planned["tensors"] - took["peak_bytes"]) < 0.03 * took["peak_bytes"], f"{planned['tensors'] / 2**30:.2f} GiB, measured {took['peak_bytes'] / 2**30:.2f}"
    if planned["activations"] != summary["activations"]:
        return  # a GPU that is nearly full: another mix of policies filled what was free
    for part, held in took.get("buffers", {}).items():
        assert planned["exact"].get(part, held) == held, part


@pytest.mark.parametrize("model,gpus,memory", [("models/large.yaml", 8, "24GiB"), ("models/large.yaml", 2, "24GiB"), ("models/qwen2.5-7b.yaml", 4, "80GiB"),
                                               ("models/qwen2.5-0.5b.yaml", 1, "8GiB"), ("models/llama-3.2-1b.yaml", 3, "16GiB"), ("models/large.yaml", 64, "40GiB")])
def test_what_is_proposed_fits_when_it_is_planned(model, gpus, memory):
    first = json.loads(plan("-f", model, "--gpus", gpus, "--memory", memory, "--json"))["memory"]
    assert first["changes"], first
    for change in first["changes"]:
        again = json.loads(plan("-f", model, *change["settings"], "--gpus", change["ranks"], "--memory", memory, "--json"))["memory"]
        assert again["fits"] and again["total"] == change["total"], change
        assert again["changes"][0]["settings"] == [], "and nothing more has to change"
    words = plan("-f", model, "--gpus", gpus, "--memory", memory)
    assert all(f"lockstep train -f {model} {' '.join(change['settings'])}".strip() in words for change in first["changes"]), words


def test_a_dry_run_of_512_ranks_looks_through_every_table():
    command = [str(LOCKSTEP), "train", "-f", "models/large.yaml", "--dry-run", "--ranks", "512", "trainer.target_device=cpu", "parallel.shard=full", "parallel.replicate=64",
               "trainer.gradient_accumulation=4", "trainer.global_batch_size=2048", "trainer.max_steps=10"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=20)
    assert done.returncode == 0, done.stderr
    for words in ("replicate 64 x shard 8", "data 0-511; shard 0-7; replicate 0, 8, ..., 504", "34 units", "of 512 ranks: looked through", "nothing was started"):
        assert words in done.stdout, done.stdout
    refused = subprocess.run([*command, "parallel.replicate=7"], capture_output=True, text=True, cwd=ROOT, timeout=20)
    assert refused.returncode == 2 and "7 groups of ranks cannot be made of 512 ranks" in refused.stderr, refused.stderr


ODD = {
    "never": (1, "3GiB", "qwen2.5-7b", []),
    "one small": (1, "24GiB", "qwen2.5-7b", []),
    "seven": (7, "24GiB", "qwen2.5-7b", ["trainer.batch_size=7"]),
    "two groups": (16, "24GiB", "llama-3.1-70b", ["parallel.shard=full", "parallel.replicate=2"]),
    "adapters": (2, "24GiB", "llama-3.1-70b", [*LORA, "trainer.gradient_accumulation=3"]),
    "four bits": (3, "10GiB", "llama-3.1-70b", [*LORA, "model.load_in_4bit=true"]),
    "tight": (6, "40GiB", "qwen2.5-7b", []),
    "a batch of all": (8, "80GiB", "qwen2.5-7b", ["trainer.global_batch_size=64", "trainer.optimizer=muon"]),
}


@pytest.mark.parametrize("case", ODD)
def test_commands_that_are_printed_can_be_run(case):
    gpus, memory, model, settings = ODD[case]
    text = plan("-f", f"models/{model}.yaml", "--gpus", gpus, "--memory", memory, *settings)
    printed = re.findall(r"fits? with .*?(?: on (\d+) GPUs)?, .* per rank:\n\s+lockstep (.*)", text)
    assert bool(printed) != ("nothing that is known here makes it fit" in text or "fits as it is" in text), text
    for verdict, needed in re.findall(r"(fits|is likely to fit) with .*, ([\d.]+ GiB) per rank", text):
        assert (verdict == "fits") == (float(needed.split()[0]) <= float(memory.removesuffix("GiB"))), text
    assert case != "tight" or "is likely to fit with" in text
    for ranks, command in printed:
        done = subprocess.run([str(LOCKSTEP), *shlex.split(command), "--dry-run", "--device", "cpu", "--ranks", ranks or str(gpus)], capture_output=True, text=True,
                              cwd=ROOT, timeout=60)
        assert done.returncode == 0 and "nothing was started" in done.stdout, (command, done.stderr)
