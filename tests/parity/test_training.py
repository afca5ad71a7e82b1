"""The first 20 steps equal those of the same model in PyTorch: losses, gradient norms, learning rates and, at the end, the weights."""
import dataclasses
import json

import numpy as np
import pytest
import torch

from parity import reference
from support.lockstep import TINY_MODEL, train, write_config

STEPS = 20
SEQ_LEN = 16
GLOBAL_BATCH = 12
MODEL_DEFAULTS = {"head_dim": 8, "rope_theta": 10000.0, "qkv_bias": False, "qk_norm": False, "norm_eps": 1e-5}
TRAINER = {"learning_rate": 0.003, "lr_schedule": "cosine", "warmup_steps": 3, "min_lr_ratio": 0.1, "decay_fraction": 0.25, "weight_decay": 0.1,
           "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "max_grad_norm": 1.0, "seed": 1234, "global_batch_size": GLOBAL_BATCH,
           "batch_size": GLOBAL_BATCH, "gradient_accumulation": 1, "max_steps": STEPS}
DATA = {"kind": "bin", "token_type": "u32", "validation_fraction": 0.1, "shuffle": True}


@dataclasses.dataclass
class Case:
    """What differs from the plain decoder on one rank. 300 samples: 270 to train on, which 20 steps of 12 do not use up."""
    name: str
    model: dict = dataclasses.field(default_factory=dict)
    trainer: dict = dataclasses.field(default_factory=dict)
    data: dict = dataclasses.field(default_factory=dict)
    ranks: int = 1
    samples: int = 300


CASES = [
    Case("plain", model={"kv_heads": 4}),
    Case("grouped heads, tied embeddings", model={"kv_heads": 2, "tie_embeddings": True}),
    Case("one key-value head", model={"kv_heads": 1}),
    Case("biases", model={"qkv_bias": True}),
    Case("head norms", model={"qk_norm": True}),
    Case("biases, head norms, tied", model={"qkv_bias": True, "qk_norm": True, "tie_embeddings": True}),
    Case("wide heads, other theta and eps", model={"head_dim": 16, "rope_theta": 500000.0, "norm_eps": 1e-6}),
    Case("accumulation", trainer={"batch_size": 3, "gradient_accumulation": 4}),
    Case("two ranks", ranks=2, trainer={"batch_size": 6}),
    Case("two ranks that accumulate, tied", ranks=2, trainer={"batch_size": 3, "gradient_accumulation": 2}, model={"tie_embeddings": True}),
    # 90 training samples: the eighth batch of an epoch has 6, so one of two ranks has nothing but weight 0.
    Case("epochs that end in a short batch", samples=100),
    Case("a short batch on two ranks", samples=100, ranks=2, trainer={"batch_size": 6}),
    # 81 training samples: the last batch has 9 of 12; micro-batches of 2 are then full, half full and empty.
    Case("a short batch on two ranks that accumulate", samples=90, ranks=2, trainer={"batch_size": 2, "gradient_accumulation": 3}),
    Case("16-bit tokens", data={"token_type": "u16"}),
    Case("the file's own order", data={"shuffle": False}, samples=100),
    Case("another seed", trainer={"seed": 7}),
    Case("constant", trainer={"lr_schedule": "constant"}),
    Case("linear", trainer={"lr_schedule": "linear"}),
    Case("cosine without warm-up", trainer={"lr_schedule": "cosine", "warmup_steps": 0}),
    Case("wsd", trainer={"lr_schedule": "wsd"}),
    Case("no clipping, no decay", trainer={"max_grad_norm": 0, "weight_decay": 0}),
    Case("hard clipping, other betas", trainer={"max_grad_norm": 0.1, "beta1": 0.8, "beta2": 0.99, "epsilon": 1e-6, "weight_decay": 0.5}),
]


def write_tokens(folder, case, vocab_size):
    """Tokens that can be learned: each follows from the one before, with some noise."""
    draw = np.random.default_rng(5)
    count = case.samples * SEQ_LEN + 1
    tokens = np.zeros(count, dtype=np.int64)
    noise = draw.integers(0, 7, count)
    for i in range(1, count):
        tokens[i] = (3 * tokens[i - 1] + noise[i]) % vocab_size
    kind = {"u32": "<u4", "u16": "<u2"}[case.data.get("token_type", "u32")]
    path = folder / "tokens.bin"
    path.write_bytes(tokens.astype(kind).tobytes())
    return path, torch.from_numpy(tokens)


@pytest.fixture(scope="module")
def initial_weights(tmp_path_factory):
    """initial_weights(model, seed) -> what a run starts from."""
    known = {}

    def of(model, seed):
        key = json.dumps([model, seed])
        if key not in known:
            known[key] = read_initial_weights(tmp_path_factory.mktemp("initial"), model, seed)
        return known[key]

    return of


def read_initial_weights(folder, model, seed):
    """From a checkpoint after one step whose learning rate is too small to change an f32 weight."""
    config = write_config(folder, "initial.yaml", model=model, trainer={"learning_rate": 1e-30, "max_steps": 1, "warmup_steps": 0, "seed": seed})
    return train(folder, "initial", config, "--ranks", "1").tensors(1)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_twenty_steps_equal_pytorch(tmp_path, initial_weights, case):
    model = {**TINY_MODEL, **MODEL_DEFAULTS, **case.model}
    trainer = {**TRAINER, **case.trainer}
    path, tokens = write_tokens(tmp_path, case, model["vocab_size"])
    data = {**DATA, **case.data, "path": str(path)}

    decoder = reference.Decoder(model)
    start = initial_weights(model, trainer["seed"])
    decoder.load_state_dict(start)  # strict: the same names and shapes on both sides
    config = write_config(tmp_path, model=model, trainer=trainer, data=data)
    ours = train(tmp_path, "run", config, "--ranks", str(case.ranks))
    theirs = reference.train(decoder, tokens, trainer, data, SEQ_LEN, STEPS)

    lines = [line for _, line in sorted(ours.steps().items())]
    assert len(lines) == STEPS
    for key, tolerance in (("learning_rate", 1e-9), ("tokens", 0), ("loss", 1e-5), ("grad_norm", 1e-5)):
        assert [line[key] for line in lines] == pytest.approx([line[key] for line in theirs], rel=tolerance), key
    assert lines[-1]["loss"] < lines[0]["loss"]
    for name, weight in decoder.state_dict().items():
        # Where a gradient passes through zero Adam divides one rounding error by another: one entry in a thousand may go further than the rest.
        off = (ours.tensors(STEPS)[name] - weight).abs()
        assert off.max() <= 1e-4 and (off > 1e-5).double().mean() <= 1e-3, f"{name}: {off.max():.1e}, {int((off > 1e-5).sum())} of {off.numel()} past 1e-5"
        assert not torch.equal(weight, start[name]), f"{name} was never trained"


def test_the_order_visits_every_sample_once_an_epoch():
    for samples in (1, 2, 3, 12, 90, 257, 1000):
        for epoch in (0, 1):
            assert sorted(reference.epoch_order(samples, 1234, epoch)) == list(range(samples))
    assert reference.epoch_order(90, 1234, 0) != reference.epoch_order(90, 1234, 1) != reference.epoch_order(90, 7, 1)


def hugging_face_shapes(model):
    """Names and shapes of transformers' LlamaForCausalLM (with Qwen2's biases and Qwen3's head norms) for these settings."""
    hidden, inner, vocab = model["hidden_size"], model["intermediate_size"], model["vocab_size"]
    q, kv = model["num_heads"] * model["head_dim"], model["kv_heads"] * model["head_dim"]
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    if not model["tie_embeddings"]:
        shapes["lm_head.weight"] = (vocab, hidden)
    for layer in range(model["num_layers"]):
        block = {"self_attn.q_proj.weight": (q, hidden), "self_attn.k_proj.weight": (kv, hidden), "self_attn.v_proj.weight": (kv, hidden),
                 "self_attn.o_proj.weight": (hidden, q), "mlp.gate_proj.weight": (inner, hidden), "mlp.up_proj.weight": (inner, hidden),
                 "mlp.down_proj.weight": (hidden, inner), "input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,)}
        if model["qkv_bias"]:
            block |= {"self_attn.q_proj.bias": (q,), "self_attn.k_proj.bias": (kv,), "self_attn.v_proj.bias": (kv,)}
        if model["qk_norm"]:
            block |= {"self_attn.q_norm.weight": (model["head_dim"],), "self_attn.k_norm.weight": (model["head_dim"],)}
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in block.items()}
    return shapes


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("options", [{}, {"tie_embeddings": True, "qkv_bias": True, "qk_norm": True}], ids=["plain", "all options"])
def test_checkpoints_are_hugging_face_safetensors(tmp_path, options, ranks):
    from safetensors import safe_open

    model = {**TINY_MODEL, **MODEL_DEFAULTS, **options}
    config = write_config(tmp_path, model=model, trainer={"max_steps": 1, "warmup_steps": 0})
    folder = train(tmp_path, "run", config, "--ranks", str(ranks)).checkpoint(1)
    found, files = {}, {}
    for path in sorted(folder.glob("model-*.safetensors")):
        with safe_open(path, framework="pt") as opened:
            for name in opened.keys():
                assert name not in found, f"{name} is stored twice"
                found[name], files[name] = opened.get_tensor(name), path.name
    assert {name: tuple(tensor.shape) for name, tensor in found.items()} == hugging_face_shapes(model)
    assert all(tensor.dtype == torch.float32 and tensor.isfinite().all() for tensor in found.values())
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert index["weight_map"] == files
    assert set(files.values()) == {"model-00001-of-00001.safetensors"}, "files are cut by unit, whoever saves"
