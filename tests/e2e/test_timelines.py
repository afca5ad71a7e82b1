"""Going back to an earlier checkpoint, and resuming with another batch or another base: runs never mix and never lose anything."""
import json
import os
import shutil

import yaml

from support.checkpoints import crc32c, seal
from support.lockstep import train, write_config

SAMPLES = {"data": {"random_tokens": 16 * 120 + 1, "validation_fraction": 0}}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def state(result, step):
    return json.loads((result.checkpoint(step) / "state.json").read_text())


def notes(result):
    return [line["text"] for line in result.metrics() if line.get("event") == "note"]


def test_going_back_ends_the_timeline(tmp_path):
    config = write_config(tmp_path, trainer={"save_interval": 4, "eval_interval": 4, "max_checkpoints": 3, "lr_schedule": "constant", "warmup_steps": 0})
    first = train(tmp_path, "run", config, "--ranks", "1", "--max-steps", "12")
    kept = {step: (first.checkpoint(step) / "manifest.json").read_bytes() for step in (8, 12)}
    folder = first.folder / "checkpoints"
    old_lines = (first.folder / "metrics.jsonl").read_bytes()

    back = train(tmp_path, "run", config, "--ranks", "1", "--resume", str(first.checkpoint(4)), "--max-steps", "6", "--lr", "0.1")
    assert f"the run goes on from step 4: step-000008, step-000012 are set aside in {folder}/abandoned-1" in back.out
    assert names(folder) == ["abandoned-1", "best", "step-000004", "step-000006"], "the one it went back to stays"
    for step, manifest in kept.items():
        assert (folder / f"abandoned-1/step-{step:06}/manifest.json").read_bytes() == manifest
    assert (folder / "abandoned-1/metrics.jsonl").read_bytes() == old_lines
    assert os.readlink(folder / "best") in ("step-000004", "step-000006")

    on = train(tmp_path, "run", config, "--ranks", "1", "--resume", "auto", "--max-steps", "14", "--lr", "0.1")
    assert "resumed from" in on.out and "at step 6" in on.out
    living = [name for name in names(folder) if name.startswith("step-")]
    assert living[-3:] == ["step-000008", "step-000012", "step-000014"] and len(living) <= 4, "the newest three, and the best one"
    steps = [line["step"] for line in on.metrics() if "loss" in line]
    assert steps == list(range(1, 15))
    assert all(on.steps()[step]["learning_rate"] == 0.1 for step in range(5, 15)), "the new timeline's lines"
    assert state(on, 8)["step"] == 8 and (on.checkpoint(8) / "manifest.json").read_bytes() != kept[8]

    # What was set aside is named to who asks for it at its old place, and can be gone on from.
    missing = train(tmp_path, "run", config, "--ranks", "1", "--resume", str(folder / "step-000011"), check=False)
    assert missing.code == 5 and "there is no whole checkpoint" in missing.text
    shutil.rmtree(on.checkpoint(12))
    aside = train(tmp_path, "run", config, "--ranks", "1", "--resume", f"{folder}/step-000012/", check=False)
    assert aside.code == 5 and "this one was set aside as" in aside.text and "abandoned-1/step-000012" in aside.text
    again = train(tmp_path, "run", config, "--ranks", "1", "--resume", str(folder / "abandoned-1/step-000012"), "--max-steps", "13")
    assert "abandoned-2" in again.out
    living = [name for name in names(folder) if name.startswith("step-")]
    assert living == ["step-000013"] and (folder / "abandoned-2/step-000014").exists()
    lines = again.steps()
    assert sorted(lines) == list(range(1, 14)) and lines[6]["learning_rate"] == 0.003, "the lines that led to it"


def test_a_checkpoint_by_another_name_is_the_runs_own(tmp_path):
    """A slash at its end, as shells complete it; the link `best`; a link from elsewhere."""
    config = write_config(tmp_path, trainer={"save_interval": 4, "eval_interval": 4, "lr_schedule": "constant"})
    first = train(tmp_path, "run", config, "--ranks", "1", "--max-steps", "12")
    folder = first.folder / "checkpoints"
    (tmp_path / "here").symlink_to(first.checkpoint(4))
    for asked, step in ((f"{folder}/best", 0), (f"{first.checkpoint(8)}/", 8), (tmp_path / "here", 4)):
        step = step or int(os.readlink(folder / "best").removeprefix("step-"))
        back = train(tmp_path, "run", config, "--ranks", "1", "--resume", str(asked), "--max-steps", "12")
        assert f"resumed from {first.checkpoint(step)} at step {step}" in back.out
        assert names(folder)[-3:] == ["step-000004", "step-000008", "step-000012"], "what it went back to stays"
        assert (folder / "best/manifest.json").exists() and sorted(back.steps()) == list(range(1, 13))


def test_a_restart_before_it_went_back_goes_back_again(tmp_path):
    config = write_config(tmp_path, trainer={"save_interval": 4, "lr_schedule": "constant"})
    first = train(tmp_path, "run", config, "--ranks", "1", "--max-steps", "12")
    fault = {"LOCKSTEP_TEST_FAULT": f"rank=0 step=0 phase=loading action=kill once={tmp_path}/struck"}
    back = train(tmp_path, "run", config, "--ranks", "1", "--resume", str(first.checkpoint(4)), "--max-steps", "6", "--max-restarts", "1", env=fault)
    assert f"restart 1 of 1 from {first.checkpoint(4)}" in back.out
    assert (first.folder / "checkpoints/abandoned-1/step-000012").exists() and sorted(back.steps()) == list(range(1, 7))


def test_a_move_cut_short_is_finished_by_the_next_start(tmp_path):
    config = write_config(tmp_path, trainer={"save_interval": 4})
    run = train(tmp_path, "run", config, "--ranks", "1", "--max-steps", "12")
    folder = run.folder / "checkpoints"
    mark = {"into": "abandoned-1", "checkpoints": ["step-000008", "step-000012"], "best": ""}
    (folder / "abandoning.json").write_text(json.dumps(mark))
    (folder / "abandoned-1").mkdir()
    run.checkpoint(12).rename(folder / "abandoned-1/step-000012")
    on = train(tmp_path, "run", config, "--ranks", "1", "--max-steps", "6", "--resume", "auto")
    assert "at step 4" in on.out
    assert names(folder / "abandoned-1") == ["metrics.jsonl", "step-000008", "step-000012"] and not (folder / "abandoning.json").exists()


def test_checkpoints_elsewhere_belong_to_one_run(tmp_path):
    config = write_config(tmp_path, trainer={"save_interval": 4, "checkpoint_dir": str(tmp_path / "elsewhere")})
    flags = ["--ranks", "1", "--max-steps", "4"]
    first = train(tmp_path, "first", config, *flags)
    before = {path: path.read_bytes() for path in (tmp_path / "elsewhere").rglob("*") if path.is_file()}
    metrics = (first.folder / "metrics.jsonl").read_bytes()
    again = train(tmp_path, "first", config, *flags, check=False)
    assert again.code == 2 and "already holds a run with checkpoints (in " in again.err
    for resume in ([], ["--resume", "auto"], ["--max-restarts", "1"]):
        other = train(tmp_path, "other", config, *flags, *resume, check=False)
        assert other.code == 2 and f"belongs to the run {tmp_path}/first" in other.err, other.text
    assert before == {path: path.read_bytes() for path in (tmp_path / "elsewhere").rglob("*") if path.is_file()}
    assert metrics == (first.folder / "metrics.jsonl").read_bytes()
    assert not (tmp_path / "other").exists(), "a refused run leaves nothing"
    on = train(tmp_path, "first", config, "--ranks", "1", "--max-steps", "6", "--resume", "auto")
    assert sorted(on.steps()) == list(range(1, 7))


def test_another_global_batch_trains_the_epochs_that_were_asked_for(tmp_path):
    config = write_config(tmp_path, trainer={"batch_size": 3, "global_batch_size": 0, "max_steps": 0, "num_epochs": 1, "save_interval": 10, "warmup_steps": 4}, **SAMPLES)
    run = train(tmp_path, "run", config, "--ranks", "2")
    assert sorted(run.steps()) == list(range(1, 21))
    shutil.copytree(run.folder, tmp_path / "same")
    shutil.rmtree(run.checkpoint(20))
    one = train(tmp_path, "one", config, "--ranks", "1")  # never had another batch: 40 steps
    resumed = train(tmp_path, "run", config, "--ranks", "1", "--resume", "auto")
    said = [note for note in notes(resumed) if "global batch" in note]
    assert said == ["the global batch was 6 samples and is 3 now: training goes on at epoch 0.5, and 20 more steps end trainer.num_epochs 1 with step 30; "
                    "the learning rate goes on as at step 20 of 40"]
    steps = resumed.steps()
    assert sorted(steps) == list(range(1, 31)) and steps[30]["epoch"] == 1.0
    for step in range(11, 31):
        assert steps[step]["learning_rate"] == one.steps()[step + 10]["learning_rate"], step
    # Stopped and gone on with once more, at the batch that it has now.
    shutil.rmtree(resumed.checkpoint(30))
    again = train(tmp_path, "run", config, "--ranks", "1", "--resume", "auto")
    assert len([note for note in notes(again) if "global batch" in note]) == 1, "the first resume's"
    assert again.losses() == resumed.losses() and {s: l["learning_rate"] for s, l in again.steps().items()} == {s: l["learning_rate"] for s, l in steps.items()}
    # max_steps counts steps, whatever their size.
    shutil.rmtree(tmp_path / "same/checkpoints/step-000020")
    counted = train(tmp_path, "same", config, "--ranks", "1", "--resume", "auto", "--max-steps", "12")
    assert sorted(counted.steps()) == list(range(1, 13))
    assert any("ends with step 12, as trainer.max_steps counts steps of any size" in note for note in notes(counted))


LORA = {"enabled": True, "rank": 4, "alpha": 8}


def test_adapters_go_on_only_from_what_they_rest_on(tmp_path):
    from support.model_folders import make_model, save

    for name, family in (("base", "Mistral"), ("other", "Mistral")):
        model = make_model(family, sliding_window=64)
        if name == "other":
            model.model.layers[1].mlp.up_proj.weight.data[3, 5] += 0.25
        save(model, tmp_path / name)

    def config(name="base", lora=LORA, **model):
        path = write_config(tmp_path, lora=lora, trainer={"batch_size": 12, "max_steps": 2})
        settings = yaml.safe_load(path.read_text())
        settings["model"] = {"path": str(tmp_path / name), "max_seq_len": 16, **model}  # the folder says the shape
        path.write_text(yaml.safe_dump(settings))
        return path

    run = train(tmp_path, "run", config(), "--ranks", "1")
    before = state(run, 2)
    assert before["adapters"]["rank"] == 4 and before["adapters"]["alpha"] == 8 and before["model"]["sliding_window"] == 64
    for changes, words in [
        ({"name": "other"}, "the fingerprint of the frozen weights is "),
        ({"lora": {**LORA, "alpha": 16}}, "lora.alpha is 8.0 there and 16.0 here"),
        ({"lora": {**LORA, "rank": 8, "alpha": 8, "rslora": True}}, "lora.rank is 4 there and 8 here; lora.rslora is false there and true here"),
        ({"lora": {**LORA, "target_modules": ["q_proj"]}}, 'lora.target_modules is ["down_proj",'),
        ({"load_in_4bit": True}, 'model\'s quantization is "none" there and "nf4, scales quantized" here'),
    ]:
        refused = train(tmp_path, "run", config(**changes), "--ranks", "1", "--max-steps", "3", "--resume", "auto", check=False)
        assert refused.code == 5 and words in refused.err and "Resume with" not in refused.err, refused.text
        assert [name for name in names(run.folder / "checkpoints") if name != "best"] == ["step-000002"]
    # The same targets by their names, and what may change, are no difference.
    every = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    on = train(tmp_path, "run", config(lora={**LORA, "target_modules": every, "dropout": 0.1}), "--ranks", "1", "--max-steps", "3", "--resume", "auto")
    assert sorted(on.steps()) == [1, 2, 3]


def test_older_checkpoints_of_adapters_still_load_and_it_is_said(tmp_path):
    config = write_config(tmp_path, lora=LORA, trainer={"batch_size": 12, "max_steps": 2})
    run = train(tmp_path, "run", config, "--ranks", "1")
    older(run.checkpoint(2))
    on = train(tmp_path, "run", config, "--ranks", "1", "--max-steps", "3", "--resume", "auto")
    assert any("written by an older version and does not say what its adapters rest on" in note for note in notes(on))
    assert sorted(on.steps()) == [1, 2, 3]


def older(checkpoint):
    """Without what later versions added to state.json, sealed again."""
    path, manifest_path = checkpoint / "state.json", checkpoint / "manifest.json"
    content = json.loads(path.read_text())
    for key in ("adapters", "schedule_offset"):
        del content[key]
    del content["model"]["sliding_window"]
    path.write_text(json.dumps(content, indent=2))
    manifest = json.loads(manifest_path.read_text())
    for file in manifest["files"]:
        if file["name"] == "state.json":
            file["bytes"], file["crc32c"] = path.stat().st_size, f"{crc32c(path.read_bytes()):08x}"
    seal(checkpoint, manifest)


