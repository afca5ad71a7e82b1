"""Losses and gradients that are not finite: skipped on all ranks together, counted, and named when there are too many."""
import math

import pytest

from support.lockstep import train, write_config


@pytest.mark.parametrize("ranks", [1, 2])
def test_one_bad_step_is_skipped_everywhere(tmp_path, ranks):
    config = write_config(tmp_path, trainer={"max_steps": 8})
    result = train(tmp_path, "run", config, "--ranks", str(ranks), "parallel.check_divergence=1",
                   env={"LOCKSTEP_TEST_FAULT": f"rank={ranks - 1} step=4 action=nan"})
    skipped = [line for line in result.metrics() if line.get("event") == "skipped"]
    assert [line["step"] for line in skipped] == [4]
    assert f"the loss of rank {ranks - 1} is not finite" in skipped[0]["reason"]
    steps = result.steps()
    assert steps[8]["skipped_steps"] == 1
    assert all(math.isfinite(steps[step]["loss"]) for step in (5, 6, 7, 8))


def test_too_many_in_a_row_end_the_run_with_names(tmp_path):
    config = write_config(tmp_path, trainer={"max_steps": 20, "max_skipped_steps": 3})
    result = train(tmp_path, "run", config, "--ranks", "2", env={"LOCKSTEP_TEST_FAULT": "rank=1 step=5 until=20 action=nan"}, check=False)
    assert result.code == 6
    assert "step 7: 3 steps in a row were skipped because the loss of rank 1 is not finite. Samples of the last one: rank 1: " in result.text


def test_f16_scale_halves_and_training_goes_on(tmp_path):
    config = write_config(tmp_path, trainer={"max_steps": 6, "initial_loss_scale": 1024})
    result = train(tmp_path, "run", config, "--ranks", "2", "--dtype", "f16", env={"LOCKSTEP_TEST_FAULT": "rank=0 step=3 action=nan"})
    assert [line["loss_scale"] for _, line in sorted(result.steps().items())] == [1024, 1024, 512, 512, 512, 512]
