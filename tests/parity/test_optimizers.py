"""Each optimizer against the library that defines it: the same weights and gradients for several steps, then weights and states."""
import json
import math
import os
import subprocess

import pytest
import torch
from safetensors.torch import load_file, save_file

from support.lockstep import BUILD, ROOT

torch.set_num_threads(1)
STEPS = 12
RATES = [1e-2 * (1 - step / (2 * STEPS)) for step in range(STEPS)]
# Stacked leaves, a shape that no block of 256 fits, a tall matrix, a wide one, vectors.
LEAVES = [["q", "k", "v"], ["down"], ["up"], ["norm"], ["bias_q", "bias_k"]]
SHAPES = {"q": (64, 64), "k": (33, 64), "v": (71, 64), "down": (48, 160), "up": (160, 48), "norm": (64,), "bias_q": (5000,), "bias_k": (37,),
          "embed": (90, 64), "adapter_b": (40, 8)}
MATRICES = [name for name, shape in SHAPES.items() if len(shape) == 2]


@pytest.fixture(scope="module")
def problem():
    draw = torch.Generator().manual_seed(3)
    weights = {name: torch.randn(shape, generator=draw) for name, shape in SHAPES.items()}
    # Gradients of very different size from number to number, and a parameter whose gradient is zero for a while.
    gradients = [{name: torch.randn(shape, generator=draw) * torch.exp(2 * torch.randn(shape, generator=draw)) for name, shape in SHAPES.items()}
                 for _ in range(STEPS)]
    for step in range(3):
        gradients[step]["norm"].zero_()
    return weights, gradients


def ours(folder, problem, method, leaves=LEAVES, **job):
    weights, gradients = problem
    names = [name for leaf in leaves for name in leaf]
    tensors = {f"weight.{name}": weights[name] for name in names}
    tensors |= {f"gradient.{step}.{name}": gradient[name] for step, gradient in enumerate(gradients) for name in names}
    save_file(tensors, folder / "in.safetensors")
    (folder / "job.json").write_text(json.dumps({"method": method, "rates": RATES, "leaves": leaves, **job}))
    out = folder / f"out-{len(list(folder.iterdir()))}.safetensors"  # files that were loaded stay mapped
    done = subprocess.run([BUILD / "bin" / "optim_tool", folder / "in.safetensors", folder / "job.json", out], capture_output=True, text=True, cwd=ROOT,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return load_file(out)


def theirs(problem, make, names=None, decay=0.1):
    """Trains with a torch optimizer made by make([{params, weight_decay}, ...]); returns weights and the optimizer's states, by name."""
    weights, gradients = problem
    names = names or [name for leaf in LEAVES for name in leaf]
    parameters = {name: torch.nn.Parameter(weights[name].clone()) for name in names}
    groups = [{"params": [p for p in parameters.values() if (p.dim() == 2) == matrix], "weight_decay": decay if matrix else 0.0} for matrix in (True, False)]
    optimizer = make([group for group in groups if group["params"]])
    for step, rate in enumerate(RATES):
        for group in optimizer.param_groups:
            group["lr"] = rate * group.get("times", 1)
        for name, parameter in parameters.items():
            parameter.grad = gradients[step][name].clone()
        optimizer.step()
    return {name: p.detach() for name, p in parameters.items()}, {name: optimizer.state[p] for name, p in parameters.items()}


def assert_close(actual, expected, relative=1e-5, what=""):
    scale = expected.abs().max().item()
    worst = (actual.double() - expected.double()).abs().max().item()
    assert worst <= relative * scale + 1e-12, f"{what}: {worst} of {scale}"


def compare(result, weights, states, kinds, relative=1e-5):
    for name, weight in weights.items():
        assert_close(result[f"weight.{name}"], weight, relative, name)
        for ours_name, theirs_name in kinds.items():
            if theirs_name in states[name]:
                assert_close(result[f"{ours_name}.{name}"].reshape(-1), states[name][theirs_name].reshape(-1), relative, f"{ours_name} of {name}")


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adamw(tmp_path, problem, decay):
    weights, states = theirs(problem, lambda groups: torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8), decay=decay)
    compare(ours(tmp_path, problem, "adamw", weight_decay=decay), weights, states, {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"})


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd(tmp_path, problem, momentum):
    weights, states = theirs(problem, lambda groups: torch.optim.SGD(groups, lr=1, momentum=momentum))
    compare(ours(tmp_path, problem, "sgd", momentum=momentum), weights, states, {"momentum_buffer": "momentum_buffer"} if momentum else {})


def test_lion(tmp_path, problem):
    """Chen et al. 2023, algorithm 2: c = b1 m + (1 - b1) g; p -= lr (sign(c) + decay p); m = b2 m + (1 - b2) g."""
    weights, gradients = problem
    result = ours(tmp_path, problem, "lion", beta1=0.9, beta2=0.99)
    for name in [name for leaf in LEAVES for name in leaf]:
        p, m = weights[name].double(), torch.zeros(SHAPES[name], dtype=torch.float64)
        for step, rate in enumerate(RATES):
            g = gradients[step][name].double()
            p = p - rate * (torch.sign(0.9 * m + 0.1 * g) + (0.1 if p.dim() == 2 else 0) * p)
            m = 0.99 * m + 0.01 * g
        assert_close(result[f"weight.{name}"], p, 1e-5, name)
        assert_close(result[f"exp_avg.{name}"], m, 1e-5, name)


def test_adafactor(tmp_path, problem):
    from transformers.optimization import Adafactor

    weights, states = theirs(problem, lambda groups: Adafactor(groups, lr=1, scale_parameter=False, relative_step=False, clip_threshold=1.0))
    compare(ours(tmp_path, problem, "adafactor"), weights, states,
            {"exp_avg_sq_row": "exp_avg_sq_row", "exp_avg_sq_col": "exp_avg_sq_col", "exp_avg_sq": "exp_avg_sq"}, relative=2e-5)


def newton_schulz(matrix):
    x = matrix.double() if matrix.shape[0] <= matrix.shape[1] else matrix.double().T
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x if matrix.shape[0] <= matrix.shape[1] else x.T


def test_muon_equals_its_formula_in_f64(tmp_path, problem):
    """Keller Jordan's reference: m = lerp(m, g, 1 - mu); u = NS5(lerp(g, m, mu)); p = p (1 - lr decay) - lr sqrt(max(1, rows / columns)) u."""
    weights, gradients = problem
    result = ours(tmp_path, problem, "muon", muon_momentum=0.95)
    for name in ("q", "k", "v", "down", "up"):
        p, m = weights[name].double(), torch.zeros(SHAPES[name], dtype=torch.float64)
        for step, rate in enumerate(RATES):
            g = gradients[step][name].double()
            m = m * 0.95 + g * 0.05
            p = p * (1 - rate * 0.1) - rate * math.sqrt(max(1, p.shape[0] / p.shape[1])) * newton_schulz(g * 0.05 + m * 0.95)
        assert_close(result[f"weight.{name}"], p, 2e-5, name)
        assert_close(result[f"momentum_buffer.{name}"], m, 1e-5, name)


def test_muon_follows_torch(tmp_path, problem):
    """torch.optim.Muon orthogonalises in bf16: updates agree to its precision."""
    names = ["q", "k", "v", "down", "up"]
    weights, states = theirs(problem, lambda groups: torch.optim.Muon(groups, momentum=0.95), names)
    result = ours(tmp_path, problem, "muon")
    for name in names:
        moved = (weights[name] - problem[0][name]).double()
        off = (result[f"weight.{name}"] - weights[name]).double()
        assert off.norm() <= 2e-2 * moved.norm(), name
        assert_close(result[f"momentum_buffer.{name}"], states[name]["momentum_buffer"], 1e-5, name)


def test_muon_leaves_the_rest_to_adamw(tmp_path, problem):
    leaves = [["embed"], ["norm"], ["bias_q", "bias_k"]]
    weights, states = theirs(problem, lambda groups: torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8), [name for leaf in leaves for name in leaf])
    compare(ours(tmp_path, problem, "muon", leaves), weights, states, {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"})


def blockwise(values, code):
    """bitsandbytes' own quantization where it is exact: its path for f64 input compares with every code (its f32 path on a CPU uses a coarse table)."""
    codes, scale = torch.ops.bitsandbytes.quantize_blockwise(values.double(), code, 256)
    if (scale == 0).any():  # 0 / 0 there; a block of zeros decodes to zeros whatever its codes
        codes.reshape(-1)[scale.repeat_interleave(256)[: codes.numel()] == 0] = code.tolist().index(0.0)
    return codes, scale


def test_adamw_8bit_equals_bitsandbytes(tmp_path, problem):
    """AdamW's arithmetic between bitsandbytes' dequantize and quantize. A last bit may turn a code that lies between two."""
    import bitsandbytes.functional as F

    weights, gradients = problem
    result = ours(tmp_path, problem, "adamw_8bit")
    maps = {"exp_avg": F.create_dynamic_map(signed=True), "exp_avg_sq": F.create_dynamic_map(signed=False)}
    coded = 0
    for name in [name for leaf in LEAVES for name in leaf]:
        p = weights[name].clone()
        small = p.numel() < 4096
        m, v = torch.zeros_like(p), torch.zeros_like(p)
        for step, rate in enumerate(RATES, 1):
            g = gradients[step - 1][name]
            m.mul_(0.9).add_(g, alpha=1 - 0.9)
            v.mul_(0.95).addcmul_(g, g, value=1 - 0.95)
            p.mul_(1 - rate * (0.1 if p.dim() == 2 else 0))
            p.addcdiv_(m, (v.sqrt() / math.sqrt(1 - 0.95**step)).add_(1e-8), value=-rate / (1 - 0.9**step))
            if not small:
                codes = {"exp_avg": blockwise(m, maps["exp_avg"]), "exp_avg_sq": blockwise(v, maps["exp_avg_sq"])}
                m, v = (torch.ops.bitsandbytes.dequantize_blockwise(*codes[kind], maps[kind], 256, torch.float32) for kind in ("exp_avg", "exp_avg_sq"))
        if small:
            assert_close(result[f"exp_avg.{name}"], m, 1e-5, name)
            assert_close(result[f"weight.{name}"], p, 1e-5, name)
            continue
        coded += 1
        for kind, (expected, scale) in codes.items():
            found = result[f"{kind}.{name}"]
            assert found.dtype == torch.uint8 and found.shape == p.shape
            differing = (found.int() - expected.reshape(p.shape).int()).abs()
            assert differing.max() <= 1 and (differing > 0).float().mean() < 2e-3, f"{kind} of {name}"
            torch.testing.assert_close(result[f"{kind}_scale.{name}"], scale, rtol=1e-3, atol=0)
        off = (result[f"weight.{name}"] - p).abs()
        assert (off > 1e-5).float().mean() < 5e-3 and off.max() < 2e-2, name
    assert coded == 5


def test_adamw_8bit_follows_bitsandbytes_own_optimizer(tmp_path, problem):
    import bitsandbytes as bnb

    names = ["q", "down", "up", "bias_q"]
    start = problem[0]
    draw = torch.Generator().manual_seed(5)  # gradients of one size: 8-bit codes lose numbers that are far below a block's largest
    problem = start, [{name: torch.randn(shape, generator=draw) for name, shape in SHAPES.items()} for _ in range(STEPS)]
    weights, states = theirs(problem, lambda groups: bnb.optim.AdamW8bit(groups, lr=1, betas=(0.9, 0.95), eps=1e-8), names)
    exact, _ = theirs(problem, lambda groups: torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8), names)
    result = ours(tmp_path, problem, "adamw_8bit")
    for name in names:
        assert states[name]["state1"].dtype == torch.uint8
        moved = (weights[name] - start[name]).double().norm()
        assert (result[f"weight.{name}"] - weights[name]).double().norm() < 0.15 * moved, name
        our_error, their_error = ((w - exact[name]).double().norm() for w in (result[f"weight.{name}"], weights[name]))
        assert our_error <= 1.05 * their_error, f"{name}: {our_error} from f32 moments, bitsandbytes on a CPU {their_error}"


def test_learning_rates_of_groups(tmp_path, problem):
    leaves = [["embed"], ["adapter_b"], ["down"]]
    times = {"embed": 0.1, "adapter_b": 16, "down": 1}
    result = ours(tmp_path, problem, "adamw", leaves, weight_decay=0.1, embedding_rate=0.1, adapter_b_rate=16)
    for name, factor in times.items():
        weights, _ = theirs(problem, lambda groups: torch.optim.AdamW([{**group, "times": factor} for group in groups], betas=(0.9, 0.95), eps=1e-8), [name])
        assert_close(result[f"weight.{name}"], weights[name], 1e-5, name)


@pytest.mark.parametrize("method", ["adamw", "adamw_8bit", "sgd", "lion", "adafactor", "muon"])
def test_weights_without_masters_stay_near_those_with(tmp_path, problem, method):
    """bf16 weights rounded stochastically: every number is within a few spacings of what masters give, and their mean error is far smaller."""
    weights, gradients = problem
    small = ({name: w.bfloat16() for name, w in weights.items()}, [{name: (0.05 * g).bfloat16() for name, g in step.items()} for step in gradients])
    rates = [rate * 0.05 for rate in RATES]
    exact = ours(tmp_path, small, method, dtype="bf16", rates=rates)
    rounded = ours(tmp_path, small, method, dtype="bf16", masters=False, rates=rates)
    for name in [name for leaf in LEAVES for name in leaf]:
        want, got = exact[f"weight.{name}"].double(), rounded[f"weight.{name}"]
        assert got.dtype == torch.bfloat16
        spacing = 2.0 ** (want.abs().clamp(min=2**-6).log2().floor() - 7)
        off = (got.double() - want) / spacing
        assert off.abs().max() < 12, name
        assert abs(off.mean()) < 6 * off.std() / math.sqrt(off.numel()) + 0.02, f"{name}: biased by {off.mean()} spacings"
