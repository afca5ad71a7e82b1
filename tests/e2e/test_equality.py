"""The same global batch gives the same training, however it is spread."""
import pytest
import torch

from support.lockstep import train, write_config

# 12 samples a step; (ranks, batch_size, gradient_accumulation)
SPREADS = [(1, 12, 1), (1, 4, 3), (1, 1, 12), (2, 6, 1), (2, 3, 2), (4, 3, 1), (4, 1, 3), (3, 4, 1), (3, 2, 2)]


def run(folder, name, ranks, batch, accumulation, samples, *args, steps=20, **sections):
    trainer = {"batch_size": batch, "gradient_accumulation": accumulation, "global_batch_size": 12, "max_steps": steps, "eval_interval": 10,
               **sections.pop("trainer", {})}
    data = {"random_tokens": 16 * samples + 1, **sections.pop("data", {})}
    config = write_config(folder, f"{name}.yaml", trainer=trainer, data=data, **sections)
    return train(folder, name, config, "--ranks", str(ranks), *args)


def assert_same(a, b, step=20, loss_tolerance=1e-5, weight_tolerance=1e-5):
    assert a.losses() == pytest.approx(b.losses(), rel=loss_tolerance)
    evaluations = [[line["eval_loss"] for line in result.metrics() if "eval_loss" in line] for result in (a, b)]
    tokens = [[line["eval_tokens"] for line in result.metrics() if "eval_loss" in line] for result in (a, b)]
    assert tokens[0] == tokens[1] and evaluations[0] == pytest.approx(evaluations[1], rel=loss_tolerance)
    left, right = a.tensors(step), b.tensors(step)
    assert left.keys() == right.keys()
    for name in left:
        torch.testing.assert_close(left[name], right[name], rtol=0, atol=weight_tolerance, msg=lambda text: f"{name}: {text}")


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """One rank, one batch: what all others must equal. 100 samples: 90 to train on, so the eighth batch of 12 is short."""
    return run(tmp_path_factory.mktemp("reference"), "reference", 1, 12, 1, 100)


@pytest.mark.parametrize("ranks,batch,accumulation", SPREADS[1:])
def test_any_spread_equals_one_rank(tmp_path, reference, ranks, batch, accumulation):
    assert_same(run(tmp_path, "run", ranks, batch, accumulation, 100), reference)


def test_loss_falls(reference):
    losses = reference.losses()
    assert len(losses) == 20 and sum(losses[-5:]) < sum(losses[:5])


# Training samples that leave 0, 1 or several of the last global batch of 12, and of its slices, empty.
@pytest.mark.parametrize("training_samples", [13, 16, 23, 24, 25])
def test_uneven_data(tmp_path, training_samples):
    samples = {13: 15, 16: 18, 23: 26, 24: 27, 25: 28}[training_samples]
    data = {"validation_fraction": 0.1}
    one = run(tmp_path, "one", 1, 12, 1, samples, data=data, steps=6)
    three = run(tmp_path, "three", 3, 2, 2, samples, data=data, steps=6)
    assert_same(three, one, step=6)
    tokens = [line["tokens"] for _, line in sorted(three.steps().items())]
    # Every sample once an epoch: the token count after an epoch is the corpus.
    per_epoch = -(-training_samples // 12)
    assert tokens[per_epoch - 1] == training_samples * 16


def test_rank_zero_can_hand_out_the_data(tmp_path, reference):
    assert_same(run(tmp_path, "run", 3, 4, 1, 100, "--no-distributed-data-loading"), reference)


def test_reduce_in_f32_and_small_buckets(tmp_path, reference):
    assert_same(run(tmp_path, "run", 2, 6, 1, 100, "parallel.bucket_cap_mb=0.01", "parallel.reduce_dtype=f32", "parallel.check_divergence=5"), reference)


INSTRUCTION_SETS = {"plain": set(), "avx2": {"avx2", "fma", "f16c"}, "avx512": {"avx512f", "avx512bw", "avx512vl", "avx512dq"}}


@pytest.mark.parametrize("kernels", INSTRUCTION_SETS)
def test_every_set_of_cpu_kernels_trains_alike(tmp_path, monkeypatch, reference, kernels):
    """A machine runs the widest kernels it has; the others are those of somebody else's machine."""
    flags = set(next(line for line in open("/proc/cpuinfo") if line.startswith("flags")).split())
    if not INSTRUCTION_SETS[kernels] <= flags:
        pytest.skip(f"this CPU has no {kernels}")
    monkeypatch.setenv("LOCKSTEP_CPU_KERNELS", kernels)
    assert_same(run(tmp_path, "run", 1, 12, 1, 100), reference)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_half_precision_agrees_between_spreads(tmp_path, dtype):
    one = run(tmp_path, "one", 1, 12, 1, 100, "--dtype", dtype)
    two = run(tmp_path, "two", 2, 6, 1, 100, "--dtype", dtype)
    assert one.losses() == pytest.approx(two.losses(), rel=1e-3)  # a sample whose gradient is lost shows as 2e-3 and more
    assert one.losses()[-1] < one.losses()[0]
    if dtype == "f16":
        assert [line["loss_scale"] for line in one.steps().values()] == [line["loss_scale"] for line in two.steps().values()]


def test_learning_rate_scaling_is_shown_and_used(tmp_path):
    config = write_config(tmp_path, trainer={"batch_size": 2, "global_batch_size": 0, "max_steps": 4, "warmup_steps": 0, "lr_schedule": "constant"})
    result = train(tmp_path, "run", config, "--ranks", "2", "trainer.lr_scaling=linear")
    assert "0.006" in result.out
    assert all(line["learning_rate"] == pytest.approx(0.006) for line in result.steps().values())
