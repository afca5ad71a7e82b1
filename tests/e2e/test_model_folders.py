"""Model folders that do not fit: each mistake is refused in words that name the file and the tensor or key."""
import json
import shutil
import struct
import subprocess

import pytest
import torch
from safetensors.torch import save_file

from support.lockstep import BUILD, LOCKSTEP, ROOT

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
          "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 20, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
          "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "float32", "hidden_act": "silu"}
BLOCK = {"self_attn.q_proj": (16, 16), "self_attn.k_proj": (8, 16), "self_attn.v_proj": (8, 16), "self_attn.o_proj": (16, 16),
         "mlp.gate_proj": (32, 16), "mlp.up_proj": (32, 16), "mlp.down_proj": (16, 32), "input_layernorm": (16,),
         "post_attention_layernorm": (16,)}


def weights():
    draw = torch.Generator().manual_seed(0)
    shapes = {"model.embed_tokens.weight": (20, 16), "lm_head.weight": (20, 16), "model.norm.weight": (16,),
              **{f"model.layers.0.{name}.weight": shape for name, shape in BLOCK.items()}}
    return {name: torch.randn(shape, generator=draw) for name, shape in shapes.items()}


def write_folder(folder, config=CONFIG, tensors=None):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights() if tensors is None else tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def show(folder, *args):
    return subprocess.run([LOCKSTEP, "config", "show", "--model", folder, *args], capture_output=True, text=True, cwd=ROOT, timeout=60)


def changed(**changes):
    return {key: value for key, value in {**CONFIG, **changes}.items() if value != "absent"}


CONFIG_MISTAKES = {
    "unknown architecture": (changed(architectures=["GPT2LMHeadModel"], model_type="gpt2"),
                             'the architecture "GPT2LMHeadModel" is not supported. Supported are LlamaForCausalLM, Qwen2ForCausalLM'),
    "a head that is no language model's": (changed(architectures=["LlamaForSequenceClassification"]), "is not supported. Supported are"),
    "no architecture": (changed(architectures="absent", model_type="absent"), "names neither architectures nor a model_type"),
    "two families": (changed(model_type="qwen2"), "architectures says LlamaForCausalLM, model_type says qwen2"),
    "no width": (changed(hidden_size="absent"), "it has no hidden_size"),
    "width of nothing": (changed(hidden_size=0), "hidden_size = 0 must be a whole number, at least 1"),
    "negative layers": (changed(num_hidden_layers=-2), "num_hidden_layers = -2 must be a whole number"),
    "layers without end": (changed(num_hidden_layers=10**15), "num_hidden_layers = 1000000000000000 must be a whole number"),
    "words for a number": (changed(vocab_size="many"), 'vocab_size = "many" must be a whole number'),
    "a number in quotes": (changed(vocab_size="20"), 'vocab_size = "20" must be a whole number'),
    "half a head": (changed(num_attention_heads=2.5), "num_attention_heads = 2.5 must be a whole number"),
    "a list for a number": (changed(hidden_size=[16]), "hidden_size = [16] must be a whole number"),
    "heads that do not divide": (changed(num_attention_heads=3, num_key_value_heads=3), "hidden_size = 16 does not divide by num_attention_heads = 3"),
    "groups that do not divide": (changed(num_key_value_heads=3, head_dim=8, num_attention_heads=4), "is not a multiple of num_key_value_heads = 3"),
    "odd heads": (changed(head_dim=7), "head_dim = 7 is odd"),
    "another activation": (changed(hidden_act="gelu"), 'hidden_act = "gelu" is not supported; silu is'),
    "biases in the feed-forward part": (changed(mlp_bias=True), "mlp_bias = true: biases in the feed-forward part are not supported"),
    "yarn": (changed(rope_scaling={"type": "yarn", "factor": 4.0}), 'rope_scaling of type "yarn" is not supported; default, linear and llama3 are'),
    "dynamic, new keys": (changed(rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}),
                          'rope_parameters of type "dynamic" is not supported'),
    "llama3 without its factor": (changed(rope_scaling={"rope_type": "llama3"}), "rope_scaling has no factor"),
    "llama3 upside down": (changed(rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 1.0,
                                                 "original_max_position_embeddings": 32}), "high_freq_factor = 1 must be above low_freq_factor = 4"),
    "rope that is no object": (changed(rope_scaling="linear"), "rope_scaling is no object"),
    "half of each head rotates": (changed(partial_rotary_factor=0.5), "partial_rotary_factor = 0.5 is not supported"),
    "gptq": (changed(quantization_config={"quant_method": "gptq"}), 'its weights are quantized ("gptq")'),
    "a type nobody trains in": (changed(torch_dtype="float64"), "dtype = float64 is not one that models are trained in"),
}


@pytest.mark.parametrize("name", CONFIG_MISTAKES)
def test_config_that_does_not_fit(tmp_path, name):
    config, says = CONFIG_MISTAKES[name]
    folder = write_folder(tmp_path / "model", config)
    done = show(folder)
    assert done.returncode == 2 and says in done.stderr and str(folder / "config.json") in done.stderr, done.stderr


@pytest.mark.parametrize("text, says", [("", "no JSON object"), ("{", "no JSON object"), ("[]", "no JSON object"), ("[" * 100000, "no JSON object"),
                                        ('{"hidden_size": 1e999}', "no JSON object")])
def test_config_that_is_no_json(tmp_path, text, says):
    folder = write_folder(tmp_path / "model")
    (folder / "config.json").write_text(text)
    done = show(folder)
    assert done.returncode == 2 and says in done.stderr, done.stderr


def test_paths_that_are_no_model_folder(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    (tmp_path / "file").write_text("")
    for path, says in (("empty", "it holds no config.json"), ("adapter", "holds a PEFT adapter"), ("file", "is a file"), ("none", "no such folder")):
        done = show(tmp_path / path)
        assert done.returncode == 2 and says in done.stderr, done.stderr
    done = show("some-org/some-model")
    assert "`hf download some-org/some-model --local-dir some-model`" in done.stderr


def test_settings_follow_the_folder(tmp_path):
    folder = write_folder(tmp_path / "tiny", changed(max_position_embeddings=131072, torch_dtype="bfloat16"))
    done = show(folder)
    assert done.returncode == 0, done.stderr
    lines = {line.split(":")[0].strip(): line for line in done.stdout.splitlines() if ":" in line}
    assert lines["hidden_size"].split("#")[0].split() == ["hidden_size:", "16"] and f"follows from {folder}/config.json" in lines["hidden_size"]
    assert "name: tiny" in done.stdout and "dtype: bf16" in done.stdout and "seq_len: 2048" in done.stdout
    # What says the same, or may be chosen, is no mistake; another shape is.
    assert show(folder, "model.hidden_size=16", "model.dtype=f32", "model.max_seq_len=512", "model.name=mine", "kv_heads=auto").returncode == 0
    other = show(folder, "model.hidden_size=32", "qk_norm=true")
    assert other.returncode == 2
    assert f"model.hidden_size = 32, but {folder}/config.json says 16. Remove model.hidden_size" in other.stderr
    assert "model.qk_norm = true" in other.stderr


def test_data_longer_than_the_window(tmp_path):
    folder = write_folder(tmp_path / "model", changed(architectures=["MistralForCausalLM"], model_type="mistral", sliding_window=32))
    assert "seq_len: 32" in show(folder).stdout
    done = show(folder, "--seq-len", "33")
    assert done.returncode == 2
    assert "data.seq_len = 33 is longer than model.sliding_window = 32" in done.stderr and "Use data.seq_len 32." in done.stderr


# ---- weights

def load(folder, tmp_path):
    save_file({"tokens": torch.zeros(1, 4, dtype=torch.int64), "targets": torch.zeros(1, 4, dtype=torch.int64)}, tmp_path / "tokens.safetensors")
    return subprocess.run([BUILD / "bin" / "model_tool", folder, tmp_path / "tokens.safetensors", tmp_path / "out.safetensors"],
                          capture_output=True, text=True, timeout=60)


def rewrite(change):
    def apply(folder):
        tensors = weights()
        change(tensors)
        write_folder(folder, CONFIG, tensors)
    return apply


def rename_all(old, new):
    return rewrite(lambda tensors: [tensors.__setitem__(name.replace(old, new, 1), tensors.pop(name)) for name in list(tensors) if name.startswith(old)])


def shard(folder, change=lambda index: None):
    tensors = weights()
    names = sorted(tensors)
    (folder / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": {}}
    for number, part in enumerate((names[:5], names[5:]), 1):
        save_file({name: tensors[name] for name in part}, folder / f"model-0000{number}-of-00002.safetensors")
        index["weight_map"] |= {name: f"model-0000{number}-of-00002.safetensors" for name in part}
    change(index)
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def sharded(change):
    return lambda folder: shard(folder, change)


def with_header(change):
    """Rewrites the header of model.safetensors in place, the data untouched."""
    def apply(folder):
        path = folder / "model.safetensors"
        raw = path.read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        header = json.loads(raw[8:8 + length])
        change(header)
        text = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length:])
    return apply


def cut(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


Q = "model.layers.0.self_attn.q_proj.weight"
WEIGHT_MISTAKES = {
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "holds neither model.safetensors nor model.safetensors.index.json"),
    "pickled weights": (lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"), "pytorch_model.bin, a pickle"),
    "gguf": (lambda folder: (folder / "model.safetensors").rename(folder / "model.gguf"), "GGUF files are not read"),
    "a pointer": (lambda folder: (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
                  "model.safetensors is a pointer of Git LFS"),
    "cut off": (cut, "model.safetensors is damaged: tensor"),
    "empty": (lambda folder: (folder / "model.safetensors").write_bytes(b""), "it has only 0 bytes"),
    "a missing tensor": (rewrite(lambda tensors: tensors.pop(Q)), f"tensor {Q} is missing"),
    "several missing": (rewrite(lambda tensors: [tensors.pop(name) for name in list(tensors) if "mlp" in name]),
                        "model.layers.0.mlp.gate_proj.weight, model.layers.0.mlp.up_proj.weight, model.layers.0.mlp.down_proj.weight are missing"),
    "no head though it is not tied": (rewrite(lambda tensors: tensors.pop("lm_head.weight")), "tensor lm_head.weight is missing"),
    "a model without its head": (rename_all("model.", ""), 'Its names lack "model."'),
    "a part of something larger": (rename_all("model.", "language_model.model."), "those are not supported"),
    "misshapen": (rewrite(lambda tensors: tensors.__setitem__(Q, torch.zeros(16, 8))), f"tensor {Q} has shape [16, 8], but config.json makes it [16, 16]"),
    "flat": (rewrite(lambda tensors: tensors.__setitem__(Q, torch.zeros(256))), f"tensor {Q} has shape [256]"),
    "whole numbers": (rewrite(lambda tensors: tensors.__setitem__(Q, torch.zeros(16, 16, dtype=torch.int64))), f"tensor {Q} is I64; F32, F16 and BF16 are read"),
    "f8": (rewrite(lambda tensors: tensors.__setitem__(Q, torch.zeros(16, 16).to(torch.float8_e4m3fn))), f"tensor {Q} is F8_E4M3; F32, F16 and BF16"),
    "quantized": (rewrite(lambda tensors: tensors.__setitem__(Q, torch.zeros(128, 1, dtype=torch.uint8))), f"tensor {Q} is quantized in a way that is not read; NF4 of bitsandbytes is"),
    "a bias of o_proj": (rewrite(lambda tensors: tensors.__setitem__("model.layers.0.self_attn.o_proj.bias", torch.zeros(16))),
                         "tensor model.layers.0.self_attn.o_proj.bias: a bias there is not supported"),
    "bytes past the file": (with_header(lambda header: header[Q].update(data_offsets=[0, 10**12])), f"tensor {Q}: its bytes 0 to 1000000000000 lie outside"),
    "overlap": (with_header(lambda header: header["model.embed_tokens.weight"].update(data_offsets=header["lm_head.weight"]["data_offsets"])), "overlap those of"),
    "negative": (with_header(lambda header: header[Q].update(shape=[-16, 16])), f"tensor {Q}: a size in its shape is no size: -16"),
    "huge": (with_header(lambda header: header[Q].update(shape=[2**40, 2**40])), f"tensor {Q}: its shape is larger than any memory"),
    "a header without end": (lambda folder: (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2**63) + b"{}"), "its header claims 9223372036854775808 bytes"),
    "an index that is no JSON": (sharded(lambda index: index.pop("weight_map")), "no JSON object with a weight_map"),
    "a way out of the folder": (sharded(lambda index: index["weight_map"].update({Q: "../model-00001-of-00002.safetensors"})),
                                f"tensor {Q} lies in \"../model-00001-of-00002.safetensors\", which is no name of a safetensors file"),
    "a number for a file": (sharded(lambda index: index["weight_map"].update({Q: 7})), f"tensor {Q} lies in 7"),
    "a shard that is gone": (sharded(lambda index: index["weight_map"].update({Q: "model-00003-of-00003.safetensors"})),
                             "model-00003-of-00003.safetensors is missing"),
    "a tensor in another shard": (sharded(lambda index: index["weight_map"].update({Q: "model-00001-of-00002.safetensors"})),
                                  f"does not hold tensor {Q}"),
}


@pytest.mark.parametrize("name", WEIGHT_MISTAKES)
def test_weights_that_do_not_fit(tmp_path, name):
    change, says = WEIGHT_MISTAKES[name]
    folder = write_folder(tmp_path / "model")
    change(folder)
    done = load(folder, tmp_path)
    assert done.returncode == 5 and says in done.stderr and str(folder) in done.stderr, done.stderr


def test_extra_tensors_are_said(tmp_path):
    def add(tensors):
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(4)
        tensors["visual.patch.weight"] = torch.zeros(4)

    folder = write_folder(tmp_path / "model")
    rewrite(add)(folder)
    done = load(folder, tmp_path)
    assert done.returncode == 0 and "1 tensor of" in done.stdout and "left out: visual.patch.weight" in done.stdout


def test_ranks_fail_together_and_say_why(tmp_path):
    folder = write_folder(tmp_path / "model")
    rewrite(lambda tensors: tensors.pop(Q))(folder)
    done = subprocess.run([LOCKSTEP, "train", "--model", folder, "--device", "cpu", "--ranks", "3", "--output", tmp_path / "runs", "data.kind=random",
                           "data.seq_len=16", "trainer.max_steps=1"], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 5 and f"tensor {Q} is missing" in done.stderr, done.stderr


def test_a_run_goes_on_without_the_folder_it_came_from(tmp_path):
    folder = write_folder(tmp_path / "model")
    common = [LOCKSTEP, "train", "--model", folder, "--device", "cpu", "--ranks", "1", "--output", tmp_path / "runs", "--name", "run", "data.kind=random",
              "data.random_tokens=2000", "data.seq_len=16", "trainer.max_steps=2", "monitor.sample_tokens=0"]
    done = subprocess.run(common, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0 and f"the model is in {tmp_path}/runs/run/model" in done.stdout, done.stdout + done.stderr
    shutil.rmtree(folder)
    out = subprocess.run([LOCKSTEP, "export", "--run", tmp_path / "runs" / "run", "--output", tmp_path / "out"], capture_output=True, text=True, timeout=60)
    assert out.returncode == 0, out.stderr
    assert (tmp_path / "out" / "model.safetensors").exists()


EXPORT_MISTAKES = [
    (["--dtype", "int8"], "--dtype int8 is not one of bf16, f16 and f32"),
    (["--max-shard-size", "lots"], "--max-shard-size lots is not a size. For example 5GB"),
    (["--max-shard-size", "-1GB"], "--max-shard-size -1GB is not a size"),
    (["--max-shard-size=0GB"], "--max-shard-size 0GB is not a size"),
    ([], "there is no such folder"),
]


@pytest.mark.parametrize("args, says", EXPORT_MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_export_that_cannot_be(tmp_path, args, says):
    done = subprocess.run([LOCKSTEP, "export", "--run", tmp_path / "none", "--output", tmp_path / "out", *args], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and says in done.stderr, done.stderr
