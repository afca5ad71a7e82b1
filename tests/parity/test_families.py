"""Model folders made by transformers: our logits, gradients and training steps are its own, and it loads what we write."""
import dataclasses
import json
import subprocess

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from parity import reference
from parity.test_training import DATA, SEQ_LEN, TRAINER, Case as TrainingCase, write_tokens
from support.lockstep import LOCKSTEP, ROOT, train
from support.model_folders import VOCABULARY, load_without_warnings, make_model, run_tool, save

LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
# Its own padding token is one of this vocabulary's, and transformers gives an embedding's row of padding no gradient.
OLMO2 = {"pad_token_id": None, "eos_token_id": None}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}


@dataclasses.dataclass
class Family:
    name: str
    family: str
    changes: dict = dataclasses.field(default_factory=dict)
    time: int = 40
    dtype: str = "float32"
    saving: dict = dataclasses.field(default_factory=dict)
    old_keys: bool = False  # config.json as transformers 4 wrote it


FAMILIES = [
    Family("llama", "Llama"),
    Family("llama, one key-value head a query head, tied", "Llama", {"num_key_value_heads": 4, "tie_word_embeddings": True}),
    Family("llama, one key-value head", "Llama", {"num_key_value_heads": 1}),
    Family("llama 3 rope, wide heads", "Llama", {"rope_parameters": LLAMA3, "head_dim": 64}, time=100),
    Family("llama 3 rope, old keys", "Llama", {"rope_parameters": LLAMA3, "head_dim": 64}, time=100, old_keys=True),
    Family("linear rope", "Llama", {"rope_parameters": LINEAR}),
    Family("linear rope, old keys", "Llama", {"rope_parameters": LINEAR}, old_keys=True),
    Family("far positions", "Llama", {"max_position_embeddings": 4096, "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
           time=3000),
    Family("llama in shards", "Llama", saving={"max_shard_size": "20KB"}),
    Family("llama stored as bf16", "Llama", dtype="bfloat16"),
    Family("llama stored as f16", "Llama", dtype="float16"),
    Family("qwen2, tied", "Qwen2", {"tie_word_embeddings": True, "rms_norm_eps": 1e-5}),
    Family("qwen2 in shards, old keys", "Qwen2", saving={"max_shard_size": "20KB"}, old_keys=True),
    Family("qwen2 within its window", "Qwen2", {"use_sliding_window": True, "sliding_window": 48, "max_window_layers": 1}),
    Family("qwen3, heads that do not fill the width", "Qwen3", {"head_dim": 16}),
    Family("qwen3, tied, old keys", "Qwen3", {"head_dim": 16, "tie_word_embeddings": True}, old_keys=True),
    Family("mistral", "Mistral", {"sliding_window": None}),
    Family("mistral within its window, wide heads", "Mistral", {"sliding_window": 40, "head_dim": 24}),
    Family("olmo2", "Olmo2", OLMO2),
    Family("olmo2, one key-value head, tied, old keys", "Olmo2", {**OLMO2, "num_key_value_heads": 1, "tie_word_embeddings": True, "rms_norm_eps": 1e-6},
           old_keys=True),
]
by_name = pytest.mark.parametrize("case", FAMILIES, ids=lambda case: case.name)


def write_old_keys(folder):
    """rope_theta, rope_scaling and torch_dtype instead of rope_parameters and dtype."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    kind = rope.pop("rope_type")
    config["rope_scaling"] = None if kind == "default" else {"type" if kind == "linear" else "rope_type": kind, **rope}
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config))


def make_folder(case, folder):
    model = make_model(case.family, **case.changes)
    save(model, folder, case.dtype, **case.saving)
    if case.old_keys:
        write_old_keys(folder)
    return model


def tokens_for(time, batch=2):
    draw = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, VOCABULARY, (batch, time + 1), generator=draw)
    return tokens[:, :-1], tokens[:, 1:]


def through(model, tokens, targets):
    """Logits, the summed loss and every gradient."""
    model.zero_grad()
    logits = model(tokens).logits
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
    loss.backward()
    return {"logits": logits.detach(), "loss": loss.detach(), **{f"grad.{name}": parameter.grad.clone() for name, parameter in model.named_parameters()}}


def assert_as_close_as_f32_allows(ours, theirs, exact):
    """Every entry within 1e-5 of the tensor's largest, or 4 times as far as transformers itself is from f64 where its f32 is worse than that."""
    assert set(ours) == set(theirs)
    for name, expected in theirs.items():
        own_error = (expected - exact[name]).abs().max().item()
        allowed = max(1e-5 * expected.abs().max().item(), 4 * own_error)
        error = (ours[name] - expected).abs().max().item()
        assert error <= allowed, f"{name}: {error:.2e} apart where {allowed:.2e} is allowed; transformers is {own_error:.2e} from f64"


@by_name
def test_logits_and_gradients_are_those_of_transformers(tmp_path, case):
    model = make_folder(case, tmp_path / "model")
    tokens, targets = tokens_for(case.time)
    theirs = through(model, tokens, targets)
    ours = run_tool(tmp_path / "model", tokens, targets, tmp_path)
    assert_as_close_as_f32_allows(ours, theirs, through(model.double(), tokens, targets))


def test_a_gradient_that_leaves_one_position_out_is_noticed(tmp_path):
    """The tolerance has teeth: of 3000 positions one is missing."""
    case = next(case for case in FAMILIES if case.time == 3000)
    model = make_folder(case, tmp_path / "model")
    tokens, targets = tokens_for(case.time)
    theirs = through(model, tokens, targets)
    targets = targets.clone()
    targets[0, 1500] = -100
    less = through(model, tokens, targets)
    exact = through(model.double(), tokens, targets)
    with pytest.raises(AssertionError):
        assert_as_close_as_f32_allows(theirs, less, exact)


class Logits(torch.nn.Module):
    """transformers' model as the reference loop calls one."""

    def __init__(self, model):
        super().__init__()
        self.inner = model

    def forward(self, tokens):
        return self.inner(tokens).logits


def config_for(tmp_path, folder, case, trainer):
    path, tokens = write_tokens(tmp_path, case, VOCABULARY)
    config = {"model": {"path": str(folder)}, "trainer": {**trainer, "save_interval": 0, "log_interval": 1},
              "data": {**DATA, "path": str(path), "seq_len": SEQ_LEN}, "monitor": {"sample_tokens": 0}}
    file = tmp_path / "config.json.yaml"
    file.write_text(json.dumps(config))
    return file, tokens


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("family, changes", [("Llama", {"rope_parameters": LLAMA3}), ("Qwen2", {"tie_word_embeddings": True}),
                                             ("Qwen3", {"head_dim": 16}), ("Olmo2", OLMO2)],
                         ids=["llama", "qwen2", "qwen3", "olmo2"])
def test_twenty_steps_are_those_of_transformers(tmp_path, family, changes, ranks):
    model = make_model(family, **changes)
    folder = save(model, tmp_path / "start")
    trainer = {**TRAINER, "batch_size": TRAINER["global_batch_size"] // ranks, "learning_rate": 1e-3}
    config, tokens = config_for(tmp_path, folder, TrainingCase("fine-tune"), trainer)
    run = train(tmp_path, "run", config, "--ranks", str(ranks))
    theirs = reference.train(Logits(model), tokens, trainer, DATA, SEQ_LEN, TRAINER["max_steps"])
    lines = [line for _, line in sorted(run.steps().items())]
    assert [line["loss"] for line in lines] == pytest.approx([line["loss"] for line in theirs], rel=1e-5)
    assert lines[-1]["loss"] < lines[0]["loss"]

    # What the run left is the model that transformers trained.
    ended = load_without_warnings(run.folder / "model")
    inputs, _ = tokens_for(SEQ_LEN)
    with torch.no_grad():
        torch.testing.assert_close(ended(inputs).logits, model(inputs).logits, rtol=0, atol=1e-4)


def train_nothing(tmp_path, name, folder):
    """One step whose learning rate changes no weight."""
    config, _ = config_for(tmp_path, folder, TrainingCase("nothing"), {**TRAINER, "batch_size": 6, "max_steps": 1, "warmup_steps": 0, "learning_rate": 1e-30})
    return train(tmp_path, name, config, "--ranks", "2")


def tensors_of(folder):
    merged = {}
    for path in sorted(folder.glob("*.safetensors")):
        merged.update(load_file(path))
    return merged


@pytest.mark.parametrize("case", [FAMILIES[0], FAMILIES[1], FAMILIES[3], FAMILIES[4], FAMILIES[9], FAMILIES[10], FAMILIES[12], FAMILIES[15],
                                  FAMILIES[17], FAMILIES[18], FAMILIES[19]], ids=lambda case: case.name)
def test_a_folder_comes_out_as_it_went_in(tmp_path, case):
    make_folder(case, tmp_path / "start")
    first = train_nothing(tmp_path, "first", tmp_path / "start")
    written = first.folder / "model"
    before, after = tensors_of(tmp_path / "start"), tensors_of(written)
    assert set(before) == set(after)
    for name, tensor in before.items():
        assert tensor.dtype == after[name].dtype and torch.equal(tensor, after[name]), name

    theirs, ours = load_without_warnings(tmp_path / "start"), load_without_warnings(written)
    assert theirs.config.to_dict() | {"_name_or_path": ""} == ours.config.to_dict() | {"_name_or_path": ""}
    inputs, _ = tokens_for(SEQ_LEN)
    with torch.no_grad():
        assert torch.equal(theirs(inputs).logits, ours(inputs).logits)

    second = train_nothing(tmp_path, "second", written)
    assert second.losses() == first.losses()


def export(run, *args, code=0):
    done = subprocess.run([str(LOCKSTEP), "export", "--run", str(run), *map(str, args)], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return done


MADE = {
    "llama": ({}, "LlamaForCausalLM"),
    "llama 3 rope": ({"max_seq_len": 64, "rope_scaling": {"type": "llama3", "factor": 4, "original_max_seq_len": 16}}, "LlamaForCausalLM"),
    "linear rope": ({"rope_scaling": {"type": "linear", "factor": 2}}, "LlamaForCausalLM"),
    "biases": ({"qkv_bias": True}, "Qwen2ForCausalLM"),
    "head norms, tied": ({"qk_norm": True, "head_dim": 16, "tie_embeddings": True}, "Qwen3ForCausalLM"),
    "heads that do not divide the width": ({"num_heads": 3, "kv_heads": 1, "head_dim": 16}, "MistralForCausalLM"),
    "a window": ({"sliding_window": 16}, "MistralForCausalLM"),
    "norms behind": ({"family": "olmo2", "qk_norm": True}, "Olmo2ForCausalLM"),
}


@pytest.mark.parametrize("name", MADE)
def test_a_model_trained_from_nothing_is_loaded_by_transformers(tmp_path, name):
    from support.lockstep import write_config

    changes, architecture = MADE[name]
    run = train(tmp_path, "run", write_config(tmp_path, model=changes, trainer={"max_steps": 2}), "--ranks", "1")
    assert not (run.folder / "model").exists(), "only a fine-tune exports by itself"
    export(run.folder, "--output", tmp_path / "out")
    model = load_without_warnings(tmp_path / "out")
    assert type(model).__name__ == architecture and model.dtype == torch.float32
    tokens, targets = tokens_for(16)
    ours = run_tool(tmp_path / "out", tokens, targets, tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(ours["logits"], model(tokens).logits, rtol=0, atol=1e-5)
    saved = run.tensors(2)
    assert all(torch.equal(saved[key], tensor) for key, tensor in tensors_of(tmp_path / "out").items())


def test_export_takes_dtype_shard_size_and_checkpoint(tmp_path):
    from support.lockstep import write_config

    run = train(tmp_path, "run", write_config(tmp_path, trainer={"max_steps": 4, "save_interval": 2}), "--ranks", "2")
    export(run.folder, "--output", tmp_path / "half", "--dtype", "bfloat16", "--max-shard-size", "20KB", "--checkpoint", run.checkpoint(2))
    files = sorted(path.name for path in (tmp_path / "half").iterdir())
    count = len([name for name in files if name.endswith(".safetensors")])
    assert count > 1 and f"model-00001-of-{count:05}.safetensors" in files and "model.safetensors.index.json" in files
    index = json.loads((tmp_path / "half" / "model.safetensors.index.json").read_text())
    saved, tensors = run.tensors(2), tensors_of(tmp_path / "half")
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in tensors.values())
    assert set(index["weight_map"]) == set(saved) == set(tensors)
    assert all(torch.equal(saved[name].bfloat16(), tensor) for name, tensor in tensors.items())
    assert all((tmp_path / "half" / name).stat().st_size < 20_000 + 4096 for name in files if name.endswith(".safetensors"))
    assert load_without_warnings(tmp_path / "half").dtype == torch.bfloat16

    again = export(run.folder, "--output", tmp_path / "half", code=2)
    assert "is there already and not empty" in again.stderr
