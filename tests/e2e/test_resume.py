"""Stopped and gone on with equals never stopped."""
import json
import os
import shutil
import signal
import subprocess
import time

import pytest
import torch

from support.checkpoints import to_format_1
from support.lockstep import LOCKSTEP, ROOT, train, write_config

TRAINER = {"global_batch_size": 12, "max_steps": 20}


def config_for(folder, name="config.yaml", **trainer):
    # 90 training samples: step 8 ends the first epoch with a short batch, so positions across epochs matter too.
    return write_config(folder, name, trainer={**TRAINER, **trainer}, data={"random_tokens": 16 * 100 + 1})


def same_bits(a, b, step=20):
    for kind in ("model", "optimizer"):
        left, right = a.tensors(step, kind), b.tensors(step, kind)
        assert left.keys() == right.keys() and left
        for name in left:
            assert torch.equal(left[name], right[name]), name


# f16 has a loss scale of its own to go on with.
@pytest.mark.parametrize("ranks,dtype", [*((ranks, dtype) for dtype in ("f32", "bf16") for ranks in (1, 2, 3)), (2, "f16")])
def test_ten_and_ten_is_twenty_bitwise(tmp_path, ranks, dtype):
    flags = ["--ranks", str(ranks), "--dtype", dtype]
    whole = train(tmp_path, "whole", config_for(tmp_path), *flags)
    halves = train(tmp_path, "halves", config_for(tmp_path, save_interval=10), *flags)
    shutil.rmtree(halves.checkpoint(20))
    resumed = train(tmp_path, "halves", config_for(tmp_path, save_interval=10), *flags, "--resume", "auto")
    assert "step-000010" in resumed.out
    assert resumed.losses() == whole.losses()
    same_bits(resumed, whole)


def test_moves_from_two_ranks_to_three_to_one(tmp_path):
    whole = train(tmp_path, "whole", config_for(tmp_path), "--ranks", "2", "trainer.batch_size=6")
    moves = [("2", "trainer.batch_size=6"), ("3", "trainer.batch_size=2"), ("1", "trainer.batch_size=4")]
    for i, (ranks, batch) in enumerate(moves):
        resume = ["--resume", "auto"] if i else []
        config = config_for(tmp_path, f"move{i}.yaml", save_interval=7)
        result = train(tmp_path, "moving", config, "--ranks", ranks, batch, *resume)
        if i < 2:  # go back to step 7, then 14
            for step in (7, 14, 20):
                if step > 7 * (i + 1):
                    shutil.rmtree(result.checkpoint(step), ignore_errors=True)
    assert result.losses() == pytest.approx(whole.losses(), rel=1e-4)
    states = [json.loads((r.checkpoint(20) / "state.json").read_text()) for r in (whole, result)]
    assert states[0]["data"] == states[1]["data"] and states[0]["tokens"] == states[1]["tokens"]
    for name, tensor in whole.tensors(20).items():
        torch.testing.assert_close(result.tensors(20)[name], tensor, rtol=0, atol=1e-5)


def test_a_checkpoint_is_the_same_files_whoever_saves_it(tmp_path):
    """Saved by three ranks; each other number reads it and saves what it read, the first from a checkpoint of format 1."""
    config, flags = config_for(tmp_path, global_batch_size=30), ["--max-steps", "4", "--optimizer", "adamw_8bit"]
    files = None
    for ranks in ("3", "1", "2", "5", "3"):
        result = train(tmp_path, "run", config, "--ranks", ranks, *flags, *(["--resume", "auto"] if files else []))
        saved = {path.name: path.read_bytes() for path in result.checkpoint(4).glob("*.safetensors*")}
        manifest = json.loads((result.checkpoint(4) / "manifest.json").read_text())
        assert manifest["version"] == 2 and manifest["writers"] == int(ranks)
        assert len(saved) == 3 and saved == (files or saved), ranks
        if not files:
            to_format_1(result.checkpoint(4))
        files = saved


def test_damaged_and_partial_checkpoints_are_skipped_and_named(tmp_path):
    result = train(tmp_path, "run", config_for(tmp_path, save_interval=5), "--ranks", "2", "--max-steps", "15")
    newest = next(result.checkpoint(15).glob("model-*.safetensors"))
    with newest.open("r+b") as file:
        file.seek(-5, os.SEEK_END)
        byte = file.read(1)
        file.seek(-5, os.SEEK_END)
        file.write(bytes([byte[0] ^ 1]))
    shutil.copytree(result.checkpoint(5), result.folder / "checkpoints/step-000017.partial")
    resumed = train(tmp_path, "run", config_for(tmp_path, save_interval=5), "--ranks", "2", "--max-steps", "15", "--resume", "auto")
    log = (resumed.folder / "ranks/0.log").read_text()
    assert "step-000010" in resumed.out
    assert newest.name in log or "step-000015" in log
    assert sorted(resumed.steps()) == list(range(1, 16))
    passed_over = [line for line in resumed.out.splitlines() if line.startswith("warning: a checkpoint was passed over: ")]
    assert len(passed_over) == 2 and "step-000017.partial: its save did not finish" in passed_over[0] and "step-000015" in passed_over[1], resumed.out
    assert "is damaged: its checksum differs" in passed_over[1]
    assert resumed.out.index(passed_over[1]) < resumed.out.index("resumed from")


def test_where_every_checkpoint_is_damaged_each_is_told_of(tmp_path):
    result = train(tmp_path, "run", config_for(tmp_path, save_interval=2), "--ranks", "1", "--max-steps", "4")
    for step in (2, 4):
        (result.checkpoint(step) / "manifest.json").write_text("{}")
    again = train(tmp_path, "run", config_for(tmp_path, save_interval=2), "--ranks", "1", "--max-steps", "2", "--resume", "auto", "--headless")
    told = [event["text"] for event in map(json.loads, again.out.splitlines()) if event.get("event") == "note"]
    assert [name for text in told if text.startswith("warning: ") for name in ("step-000004", "step-000002") if name in text] == ["step-000004", "step-000002"], told
    assert any("goes on from its beginning" in text for text in told), told


def test_a_run_that_has_saved_nothing_goes_on_from_where_it_came(tmp_path):
    config = config_for(tmp_path, save_interval=2)
    first = train(tmp_path, "first", config, "--ranks", "1", "--max-steps", "4")
    asked = ["--ranks", "1", "--max-steps", "9", "--resume", str(first.checkpoint(2))]
    dies = lambda step: {"LOCKSTEP_TEST_FAULT": f"rank=0 action=kill phase=forward step={step}"}
    early = train(tmp_path, "early", config, *asked, "trainer.save_interval=100", env=dies(4), check=False)
    assert early.code == 6 and ending(early)["resume"].endswith(f"--max-steps 9 trainer.save_interval=100 --resume {first.checkpoint(2)}"), early.text
    assert f"Resume with: {ending(early)['resume']}\n" in early.err
    late = train(tmp_path, "late", config, *asked, env=dies(6), check=False)
    assert late.checkpoint(4).exists() and ending(late)["resume"].endswith("--resume auto"), late.text


def ending(result):
    return json.loads((result.folder / "end.json").read_text())


def test_a_checkpoint_left_while_it_was_replaced_is_gone_on_from(tmp_path):
    """A save that replaces a step's checkpoint first moves the old one aside; a crash then leaves only that."""
    result = train(tmp_path, "run", config_for(tmp_path), "--ranks", "2", "--max-steps", "6")
    result.checkpoint(6).rename(result.folder / "checkpoints/step-000006.replaced")
    resumed = train(tmp_path, "run", config_for(tmp_path), "--ranks", "2", "--max-steps", "9", "--resume", "auto")
    assert "at step 6" in resumed.out and sorted(resumed.steps()) == list(range(1, 10))


def test_another_model_is_refused_with_its_keys(tmp_path):
    train(tmp_path, "run", config_for(tmp_path), "--max-steps", "4", "--ranks", "1")
    other = write_config(tmp_path, "other.yaml", model={"hidden_size": 48, "num_heads": 4}, trainer=TRAINER, data={"random_tokens": 16 * 100 + 1})
    refused = train(tmp_path, "run", other, "--resume", "auto", "--ranks", "1", check=False)
    assert refused.code == 5
    assert "model.hidden_size is 32 there and 48 here" in refused.text


def test_other_data_is_refused_unless_allowed(tmp_path):
    train(tmp_path, "run", config_for(tmp_path), "--max-steps", "4", "--ranks", "1")
    other = write_config(tmp_path, "other.yaml", trainer=TRAINER, data={"random_tokens": 16 * 120 + 1})
    refused = train(tmp_path, "run", other, "--resume", "auto", "--ranks", "2", check=False)
    assert refused.code == 5 and "--allow-new-data" in refused.text
    allowed = train(tmp_path, "run", other, "--resume", "auto", "--ranks", "2", "--allow-new-data")
    assert sorted(allowed.steps()) == list(range(1, 21))


def test_keeps_only_the_newest(tmp_path):
    result = train(tmp_path, "run", config_for(tmp_path, save_interval=3, max_checkpoints=2), "--ranks", "2")
    assert sorted(path.name for path in (result.folder / "checkpoints").iterdir()) == ["best", "step-000018", "step-000020"]


def test_ctrl_c_saves_and_the_run_goes_on(tmp_path):
    whole = train(tmp_path, "whole", config_for(tmp_path, max_steps=60), "--ranks", "2")
    config = config_for(tmp_path, max_steps=60)
    command = [str(LOCKSTEP), "train", "-f", str(config), "--output", str(tmp_path), "--name", "run", "--device", "cpu", "--ranks", "2"]
    # From step 4 on it is slow: the signal is there long before the last step, however late it is sent.
    slow = {"LOCKSTEP_TEST_FAULT": "rank=0 action=slow phase=reading_data step=4 until=60 ms=500"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, env={**os.environ, **slow})
    metrics = tmp_path / "run/metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and '"step":3,' in metrics.read_text()):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, out
    assert "stopped; everything is saved" in out and "--resume auto" in out
    resumed = train(tmp_path, "run", config, "--ranks", "2", "--resume", "auto")
    assert resumed.losses() == whole.losses()
