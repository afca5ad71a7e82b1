"""Settings that say what a run keeps, evaluates and trains faster, as they behave in a run."""
import pytest
import torch

from support.lockstep import train, write_config

EVALUATED = {"batch_size": 4, "global_batch_size": 4, "max_steps": 6, "eval_interval": 2, "save_interval": 2, "max_checkpoints": 1}


@pytest.mark.parametrize("keep", [True, False])
def test_the_best_checkpoint_stays_unless_it_need_not(tmp_path, keep):
    run = train(tmp_path, "run", write_config(tmp_path, trainer={**EVALUATED, "keep_best": keep}), "--ranks", "1")
    kept = sorted(path.name for path in (run.folder / "checkpoints").iterdir() if path.name.startswith("step-") or path.name == "best")
    assert ("best" in kept) == keep and "step-000006" in kept, kept


def test_an_evaluation_takes_so_many_batches(tmp_path):
    """20 of 200 windows of 16 tokens are held back: batches of 4 are 64 tokens, all of them 320."""
    for batches, tokens in ((1, 64), (3, 192), (0, 320), (99, 320)):
        config = write_config(tmp_path, f"{batches}.yaml", data={"random_tokens": 16 * 200 + 1}, trainer={**EVALUATED, "eval_batches": batches, "max_steps": 2})
        run = train(tmp_path, f"run{batches}", config, "--ranks", "1")
        assert f"over {tokens} tokens" in run.out, run.out


def test_validation_data_of_its_own_leaves_training_whole(tmp_path):
    for name, windows in (("train.bin", 40), ("valid.bin", 5)):
        torch.arange(16 * windows + 1).remainder(60).to(torch.int32).numpy().tofile(tmp_path / name)
    data = {"kind": "bin", "path": str(tmp_path / "train.bin"), "validation_path": str(tmp_path / "valid.bin"), "validation_fraction": 0.5}
    config = write_config(tmp_path, data=data, trainer={**EVALUATED, "max_steps": 0, "eval_interval": 0, "save_interval": 0})
    run = train(tmp_path, "run", config, "--ranks", "1")
    assert max(run.steps()) == 10, "40 windows, 4 a step: none is held back"
    assert "over 80 tokens" in run.out, run.out
    twice = train(tmp_path, "twice", config, "--ranks", "1", "--epochs", "1.5")
    assert max(twice.steps()) == 15


def test_a_run_may_end_without_a_checkpoint(tmp_path):
    config = write_config(tmp_path, trainer={"batch_size": 12, "max_steps": 4, "save_interval": 3}, checkpoint={"save_at_end": False})
    run = train(tmp_path, "run", config, "--ranks", "1")
    assert [path.name for path in sorted((run.folder / "checkpoints").glob("step-*"))] == ["step-000003"] and "finished 4 steps" in run.out


def test_b_learns_faster_by_its_ratio(tmp_path):
    """AdamW's first step moves every entry by the rate. B starts as zero, so A has no gradient yet."""
    moved = {}
    for ratio in (1, 16):
        trainer = {"batch_size": 12, "max_steps": 1, "warmup_steps": 0, "learning_rate": 1e-3, "lr_schedule": "constant", "epsilon": 1e-15, "max_grad_norm": 0}
        config = write_config(tmp_path, f"{ratio}.yaml", lora={"enabled": True, "rank": 4, "b_lr_ratio": ratio}, trainer=trainer)
        moved[ratio] = train(tmp_path, f"run{ratio}", config, "--ranks", "1").tensors(1)
    for name, tensor in moved[1].items():
        if "lora_B" in name:
            assert tensor.abs().max().item() == pytest.approx(1e-3, rel=1e-3)
            torch.testing.assert_close(moved[16][name], 16 * tensor, rtol=1e-4, atol=1e-7)
