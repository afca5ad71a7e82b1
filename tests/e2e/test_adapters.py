"""Training adapters: any spread over ranks, recompute, 4 and 8 bits, dropout, resume, and batches that shrink until they fit."""
import re
import resource
import shutil
import subprocess

import pytest
import torch

from e2e.test_equality import assert_same, run
from support.lockstep import LOCKSTEP, ROOT, train, write_config

LORA = {"enabled": True, "rank": 4, "alpha": 8}
KINDS = {
    "lora": ({"lora": LORA}, {}),
    "dropout": ({"lora": {**LORA, "dropout": 0.3}}, {}),
    "dora": ({"lora": {**LORA, "dora": True}}, {}),
    "whole modules": ({"lora": {**LORA, "target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"]}}, {}),
    "4 bits": ({"lora": LORA}, {"load_in_4bit": True}),
    "8 bits": ({"lora": LORA}, {"load_in_8bit": True}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_any_spread_equals_one_rank(tmp_path, kind):
    sections, model = KINDS[kind]
    one = run(tmp_path, "one", 1, 12, 1, 100, steps=8, model=model, **sections)
    for ranks, batch, accumulation in ((3, 2, 2), (2, 6, 1)):
        assert_same(run(tmp_path, f"of{ranks}", ranks, batch, accumulation, 100, steps=8, model=model, **sections), one, step=8)


def test_dropout_drops(tmp_path):
    plain = run(tmp_path, "plain", 1, 12, 1, 100, steps=3, lora=LORA)
    dropped = run(tmp_path, "dropped", 1, 12, 1, 100, steps=3, lora={**LORA, "dropout": 0.5})
    assert plain.losses()[0] == dropped.losses()[0]  # B starts as zero: nothing to drop yet
    assert plain.losses()[2] != dropped.losses()[2]


RECOMPUTE = {
    "norms": "norms recomputed in 2",
    "qkv": "norms and qkv recomputed in 2",
    "blocks": "everything recomputed in 2",
    "blocks trainer.recompute_every=2": "norms recomputed in 1, everything recomputed in 1",
    "blocks --offload-checkpoints": "everything recomputed in 2",
}


@pytest.mark.parametrize("kind", ["lora", "dropout", "4 bits"])
@pytest.mark.parametrize("recompute", RECOMPUTE)
def test_recompute_changes_no_bit(tmp_path, kind, recompute):
    sections, model = KINDS[kind]
    kept = run(tmp_path, "kept", 1, 12, 1, 100, "--recompute", "none", steps=3, model=model, **sections)
    again = run(tmp_path, "again", 1, 12, 1, 100, "--recompute", *recompute.split(), steps=3, model=model, **sections)
    assert [line["activations"] for line in again.metrics() if "activations" in line] == [RECOMPUTE[recompute]]
    assert again.losses() == kept.losses()
    for name, tensor in kept.tensors(3).items():
        assert torch.equal(tensor, again.tensors(3)[name]), name


@pytest.mark.parametrize("kind", KINDS)
def test_resumed_is_never_stopped(tmp_path, kind):
    sections, model = KINDS[kind]
    config = write_config(tmp_path, model=model, trainer={"batch_size": 6, "global_batch_size": 12, "max_steps": 8, "save_interval": 4}, **sections)
    whole = train(tmp_path, "whole", config, "--ranks", "2")
    shutil.copytree(whole.folder, tmp_path / "halves")
    shutil.rmtree(tmp_path / "halves/checkpoints/step-000008")
    halves = train(tmp_path, "halves", config, "--ranks", "2", "--resume", "auto")
    assert "at step 4" in halves.out
    assert halves.losses() == whole.losses()
    for part in ("model", "optimizer"):
        ours, theirs = halves.tensors(8, part), whole.tensors(8, part)
        assert ours.keys() == theirs.keys() and ours
        for name in ours:
            assert torch.equal(ours[name], theirs[name]), name
    assert any(not torch.equal(tensor, whole.tensors(4)[name]) for name, tensor in whole.tensors(8).items()), "it trains"
    trained = [name for name in whole.tensors(8) if "lora" not in name]
    assert not trained or kind in ("whole modules", "dora"), "a checkpoint holds what is trained"


SEVEN = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def test_all_linear_is_the_seven_names(tmp_path):
    """PEFT writes the names; a run file may say all-linear. The same matrices, so a run goes on either way; others are a contradiction."""
    def config(name, **lora):
        return write_config(tmp_path, f"{name}.yaml", lora={**LORA, **lora}, trainer={"batch_size": 12, "max_steps": 4, "save_interval": 2})

    first = train(tmp_path, "first", config("first", target_modules=["all-linear"]), "--ranks", "1", "--max-steps", "2")
    on = train(tmp_path, "first", config("names", target_modules=SEVEN[::-1]), "--ranks", "1", "--resume", "auto")
    assert "at step 2" in on.out and sorted(on.steps()) == [1, 2, 3, 4]
    adapter = str(first.folder / "adapter")
    said = train(tmp_path, "said", config("said", adapters=[adapter], target_modules=["all-linear"]), "--ranks", "1", "--max-steps", "1")
    spelled = train(tmp_path, "spelled", config("spelled", adapters=[adapter], target_modules=SEVEN), "--ranks", "1", "--max-steps", "1")
    assert said.losses() == spelled.losses()
    refused = train(tmp_path, "fewer", config("fewer", adapters=[adapter], target_modules=SEVEN[:3]), "--ranks", "1", check=False)
    assert refused.code == 2 and "Remove lora.target_modules: the folder gives the adapter's shape." in refused.text, refused.text


def test_a_checkpoint_of_adapters_is_exported(tmp_path):
    import json
    import subprocess

    from support.lockstep import LOCKSTEP

    done = train(tmp_path, "run", write_config(tmp_path, lora=LORA, trainer={"batch_size": 12, "max_steps": 2}), "--ranks", "1")
    subprocess.run([LOCKSTEP, "export", "--run", done.folder, "--output", tmp_path / "adapter"], check=True, capture_output=True, timeout=60)
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        assert (tmp_path / "adapter" / name).read_bytes() == (done.folder / "adapter" / name).read_bytes()
    assert json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["r"] == 4


@pytest.mark.parametrize("ranks, kind", [(1, None), (2, None), (1, "dropout")])
def test_batches_shrink_until_they_fit_on_every_rank(tmp_path, ranks, kind):
    batch = 12 // ranks
    sections = KINDS[kind][0] if kind else {}
    trainer = {"auto_find_batch_size": True}
    fault = {"LOCKSTEP_TEST_FAULT": f"rank={ranks - 1} action=memory samples=3"}
    config = write_config(tmp_path, trainer={**trainer, "batch_size": batch, "global_batch_size": 12, "max_steps": 4}, **sections)
    found = train(tmp_path, "found", config, "--ranks", str(ranks), env=fault)
    notes = [line["text"] for line in found.metrics() if line.get("event") == "note"]
    assert any(f"batch_size {batch} did not fit into memory; a step takes {12 // ranks // 3} micro-batches of 3" in note for note in notes), notes
    config = write_config(tmp_path, "plain.yaml", trainer={"batch_size": 3, "global_batch_size": 12, "max_steps": 4}, **sections)
    plain = train(tmp_path, "plain", config, "--ranks", str(ranks))
    assert found.losses() == plain.losses()


def test_one_sample_that_does_not_fit_is_said(tmp_path):
    config = write_config(tmp_path, trainer={"auto_find_batch_size": True, "batch_size": 6, "global_batch_size": 12})
    failed = train(tmp_path, "run", config, "--ranks", "2", env={"LOCKSTEP_TEST_FAULT": "rank=1 action=memory samples=0"}, check=False)
    assert failed.code == 3 and "[memory] the machine's memory is full: not even one sample of 16 tokens fits on rank 1" in failed.text
    assert "rank 1 of 2 died first" in failed.err and "--shard full" in failed.err, "the rank that ran out"
    assert "Planned: " in failed.err and "Each of 2 ranks of this host has " in failed.err and "LS-402" in failed.err and "GPU" not in failed.err, failed.err


def test_a_full_device_says_what_was_held(tmp_path):
    config = write_config(tmp_path, trainer={"max_steps": 5}, parallel={"shard": "full"})
    failed = train(tmp_path, "run", config, "--ranks", "2", env={"LOCKSTEP_TEST_FAULT": "rank=1 step=3 phase=backward action=full_memory"}, check=False)
    assert failed.code == 3 and "rank 1 of 2 died first, in step 3" in failed.err, failed.err
    held = re.search(r"Rank 1 held weights ([^,]+), gradients ([^,]+), optimizer states ([^,]+), slots ([^,]+), activations ", failed.err)
    planned = re.search(r"Planned: .* per rank: weights ([^,]+), gradients ([^,]+), optimizer states", failed.err)
    assert held and planned and held.groups()[:2] == planned.groups(), failed.err


def test_a_full_machine_is_no_bug(tmp_path):
    """PyTorch's allocator for CPUs throws an error of no type of its own."""
    model = {"hidden_size": 512, "num_layers": 16, "num_heads": 8, "kv_heads": 8, "intermediate_size": 2048, "vocab_size": 32000, "max_seq_len": 64}
    config = write_config(tmp_path, model=model, data={"seq_len": 64, "random_tokens": 64 * 100})
    limit = 1_800_000 * 1024
    command = [str(LOCKSTEP), "train", "-f", str(config), "--output", str(tmp_path), "--name", "run", "--device", "cpu", "--ranks", "2"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    assert done.returncode == 3 and "[memory] the machine's memory is full" in done.stderr, done.stdout + done.stderr
    assert "more were asked for" in done.stderr and "Lower trainer.batch_size" in done.stderr, done.stderr
    assert "Planned: " in done.stderr and "Under `ulimit -v` each rank, its program left out, has 1.2 GiB." in done.stderr and "What fits: parallel.shard=" in done.stderr, done.stderr
    assert "frame #" not in done.stderr and "enforce fail" not in done.stderr and "GPU" not in done.stderr, done.stderr
