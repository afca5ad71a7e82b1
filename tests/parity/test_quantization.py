"""Weights in four and eight bits against bitsandbytes on a CPU: the same bits in codes, scales and the weights they stand for."""

import json
import subprocess

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

from support import model_folders
from support.lockstep import BUILD

import bitsandbytes.functional as bnb
import bitsandbytes.backends.default.ops as default_ops

TOOL = BUILD / "bin" / "quant_tool"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
STATE = ".quant_state.bitsandbytes__nf4"


@pytest.fixture(autouse=True)
def one_thread():
    """torch.mean sums in an order that follows the number of threads; ours is that of one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tool(*args, fails=False):
    done = subprocess.run([TOOL, *map(str, args)], capture_output=True, text=True, timeout=120)
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr


def matrices(dtype):
    """Names and weights: whole blocks, many blocks of scales, a short last block, an odd count, ties, zeros, wild and tiny numbers."""
    random = torch.Generator().manual_seed(7)
    levels = bnb.get_4bit_type("nf4", device="cpu")
    ties = torch.zeros(8, 64)
    ties[:, :15] = (levels[:-1] + levels[1:]) / 2
    ties[:, 63] = torch.tensor([1.0, -1.0, 2.0, 0.5, 3.0, 0.1, 7.0, 1e-3])
    ties *= torch.tensor([1.0, 1.0, 2.0, 0.5, 3.0, 0.1, 7.0, 1e-3])[:, None] / ties[:, 63:].abs()
    blocks = torch.zeros(16, 64)
    blocks[::3] = torch.randn(6, 64, generator=random)
    sizes = torch.logspace(-8, 4, 64)[:, None]
    named = {
        "plain": torch.randn(256, 320, generator=random) * 0.02,
        "large": torch.randn(1024, 1040, generator=random) * 0.02,
        "one_block": torch.randn(8, 8, generator=random),
        "short_block": torch.randn(40, 100, generator=random),
        "short": torch.randn(3, 10, generator=random),
        "ties": ties,
        "zero_blocks": blocks,
        "zeros": torch.zeros(4, 64),
        "every_size": torch.randn(64, 64, generator=random) * sizes,
        "outliers": torch.where(torch.rand(128, 128, generator=random) < 0.01, 50.0, 0.01) * torch.randn(128, 128, generator=random),
        "tiny": torch.randn(4, 64, generator=random) * 1e-39,
    }  # fmt: skip
    return {name: weight.to(dtype).contiguous() for name, weight in named.items()}


def same(ours, theirs):
    return ours.dtype == theirs.dtype and ours.shape == theirs.shape and torch.equal(ours.view(torch.uint8), theirs.view(torch.uint8))


def dense_by_bitsandbytes(codes, state):
    """Its compiled library (0.50.2 with AVX-512) mixes up scales where rows are no multiple of a block, and has no denormal bf16 numbers;
    its plain path has neither flaw."""
    absmax = bnb.dequantize_blockwise(state.absmax, state.state2) + state.offset if state.nested else state.absmax
    if state.shape[-1] % 64 == 0 and not ((absmax > 0) & (absmax < 1e-30)).any():
        return bnb.dequantize_4bit(codes, state)
    return default_ops._dequantize_4bit_compute.__wrapped__(codes.reshape(-1), absmax, state.code, 64, list(state.shape), state.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("double", [True, False])
def test_nf4_is_bitsandbytes(tmp_path, dtype, double):
    weights = matrices(DTYPES[dtype])
    save_file(weights, tmp_path / "in.safetensors")
    tool("quantize", "nf4" if double else "nf4-plain", tmp_path / "in.safetensors", tmp_path / "out.safetensors")
    ours = load_file(tmp_path / "out.safetensors")
    for name, weight in weights.items():
        codes, state = bnb.quantize_4bit(weight, blocksize=64, quant_type="nf4", compress_statistics=double)
        theirs = state.as_dict(packed=True)
        assert same(ours[name], codes), name
        for key in theirs:
            if not key.startswith("quant_state"):
                assert same(ours[f"{name}.{key}"], theirs[key].contiguous()), f"{name}.{key}"
        packed = json.loads(bytes(ours[name + STATE].tolist()))
        assert packed == json.loads(bytes(theirs[STATE[1:]].tolist())), name
        assert same(ours[name + ".dense"].view(-1), dense_by_bitsandbytes(codes, state).reshape(-1)), name


@pytest.mark.parametrize("dtype", DTYPES)
def test_nf4_codes_are_those_of_its_plain_path_too(tmp_path, dtype):
    """bitsandbytes without its compiled library: plain torch. It rounds the codes of scales exactly, where the library goes through bins."""
    weights = matrices(DTYPES[dtype])
    save_file(weights, tmp_path / "in.safetensors")
    tool("quantize", "nf4", tmp_path / "in.safetensors", tmp_path / "out.safetensors")
    tool("quantize", "nf4-plain", tmp_path / "in.safetensors", tmp_path / "plain.safetensors")
    ours, plain = load_file(tmp_path / "out.safetensors"), load_file(tmp_path / "plain.safetensors")
    levels = bnb.get_4bit_type("nf4", device="cpu")
    for name, weight in weights.items():
        codes, absmax = bnb.quantize_4bit(weight, quant_type="nf4")[0], plain[name + ".absmax"]
        assert same(plain[name], codes)
        back = default_ops._dequantize_4bit_compute.__wrapped__(codes.reshape(-1), absmax, levels, 64, list(weight.shape), weight.dtype)
        assert same(plain[name + ".dense"], back), name
    for name in ("plain", "large"):  # the scale's code is the exactly nearest, or in rare cases the one beside it
        offset = json.loads(bytes(ours[name + STATE].tolist()))["nested_offset"]
        absmax, levels8 = plain[name + ".absmax"], ours[name + ".nested_quant_map"]
        outer = ours[name + ".nested_absmax"].repeat_interleave(256)[: absmax.numel()]
        exact = torch.bucketize((absmax - offset) / outer, (levels8[1:] + levels8[:-1]) / 2)
        assert (exact - ours[name + ".absmax"].int()).abs().max() <= 1, name
        assert (exact != ours[name + ".absmax"].int()).float().mean() < 0.01, name


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("double", [True, False])
def test_reads_what_bitsandbytes_wrote(tmp_path, dtype, double):
    weights, packed = matrices(DTYPES[dtype]), {}
    for name, weight in weights.items():
        codes, state = bnb.quantize_4bit(weight, quant_type="nf4", compress_statistics=double)
        packed[name] = codes
        packed.update({f"{name}.{key}": value.contiguous() for key, value in state.as_dict(packed=True).items()})
    save_file(packed, tmp_path / "in.safetensors")
    for out, target in (("F32", torch.float32), ("BF16", torch.bfloat16), ("F16", torch.float16)):
        tool("dense", out, tmp_path / "in.safetensors", tmp_path / "out.safetensors")
        ours = load_file(tmp_path / "out.safetensors")
        for name, weight in weights.items():
            codes, state = bnb.quantize_4bit(weight, quant_type="nf4", compress_statistics=double)
            state.dtype = target
            assert same(ours[name].view(-1), dense_by_bitsandbytes(codes, state).reshape(-1)), (name, out)


def packed_matrix():
    codes, state = bnb.quantize_4bit(torch.randn(8, 64), quant_type="nf4", compress_statistics=True)
    return {"w": codes, **{f"w.{key}": value.contiguous() for key, value in state.as_dict(packed=True).items()}}


def with_state(tensors, **changes):
    state = {**json.loads(bytes(tensors["w" + STATE].tolist())), **changes}
    return {**tensors, "w" + STATE: torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)}


BROKEN = {
    "another block size": (lambda t: with_state(t, blocksize=128), "says blocksize 128; only 64 is read"),
    "another nested block size": (lambda t: with_state(t, nested_blocksize=64), "says nested_blocksize 64; only 256 is read"),
    "another type inside": (lambda t: with_state(t, quant_type="int4"), "does not say quant_type nf4"),
    "a shape that has more": (lambda t: with_state(t, shape=[16, 64]), "has 256 numbers of type Byte, but a weight of [16, 64] in NF4 has 512"),
    "scales cut short": (lambda t: {**t, "w.absmax": t["w.absmax"][:-1].contiguous()}, "tensor w.absmax has 7 numbers"),
    "scales missing": (lambda t: {k: v for k, v in t.items() if k != "w.absmax"}, "tensor w.absmax is missing"),
    "other levels": (lambda t: {**t, "w.quant_map": t["w.quant_map"] * 2}, "does not hold the levels of NF4"),
    "an offset that is no number": (lambda t: with_state(t, nested_offset="x"), "has no number nested_offset"),
    "no scale of scales": (lambda t: {k: v for k, v in t.items() if k != "w.nested_absmax"}, "tensor w.nested_absmax is missing"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_refuses_what_it_cannot_read(tmp_path, case):
    change, words = BROKEN[case]
    save_file(change(packed_matrix()), tmp_path / "in.safetensors")
    assert words in tool("dense", "F32", tmp_path / "in.safetensors", tmp_path / "out.safetensors", fails=True)


def test_refuses_fp4_by_name(tmp_path):
    codes, state = bnb.quantize_4bit(torch.randn(8, 64), quant_type="fp4", compress_statistics=True)
    save_file({"w": codes, **{f"w.{key}": value.contiguous() for key, value in state.as_dict(packed=True).items()}}, tmp_path / "in.safetensors")
    assert "FP4" in tool("dense", "F32", tmp_path / "in.safetensors", tmp_path / "out.safetensors", fails=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_int8_is_the_nearest_of_255_steps(tmp_path, dtype):
    weights = matrices(DTYPES[dtype])
    save_file(weights, tmp_path / "in.safetensors")
    tool("quantize", "int8", tmp_path / "in.safetensors", tmp_path / "out.safetensors")
    ours = load_file(tmp_path / "out.safetensors")
    for name, weight in weights.items():
        flat = weight.float().view(-1)
        padded = torch.nn.functional.pad(flat, (0, -flat.numel() % 64)).view(-1, 64)
        most = padded.abs().amax(1, keepdim=True)
        most = torch.where(most < 1e-30, torch.zeros(()), most)
        codes = torch.where(most > 0, torch.round(padded * (torch.tensor(127.0) / most)), torch.zeros(()))
        scales = most / 127
        assert torch.equal(ours[name + ".absmax"], scales.view(-1)), name
        assert torch.equal(ours[name].view(torch.int8), codes.to(torch.int8).view(-1)[: flat.numel()]), name
        assert same(ours[name + ".dense"].view(-1), (codes.to(torch.int8).float() * scales).view(-1)[: flat.numel()].to(weight.dtype)), name


def folders(tmp_path, family="Qwen2", **changes):
    """One model three ways: in 16 bits as transformers saves it, packed by bitsandbytes, and whole with the weights that the packed stand for."""
    model = model_folders.make_model(family, hidden_size=64, intermediate_size=100, **changes)
    plain = model_folders.save(model, tmp_path / "plain")
    tensors, packed, whole = load_file(plain / "model.safetensors"), {}, {}
    for name, weight in tensors.items():
        packed[name] = whole[name] = weight
        if "_proj.weight" in name:
            packed[name], state = bnb.quantize_4bit(weight, quant_type="nf4", compress_statistics=True)
            packed.update({f"{name}.{key}": value.contiguous() for key, value in state.as_dict(packed=True).items()})
            whole[name] = dense_by_bitsandbytes(packed[name], state).reshape(weight.shape)
    made = [plain]
    for kind, content in (("packed", packed), ("whole", whole)):
        folder = tmp_path / kind
        folder.mkdir()
        config = json.loads((plain / "config.json").read_text())
        if kind == "packed":
            config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
        (folder / "config.json").write_text(json.dumps(config))
        save_file(content, folder / "model.safetensors", metadata={"format": "pt"})
        made.append(folder)
    return made


@pytest.mark.parametrize("family, changes", [("Qwen2", {}), ("Olmo2", {"pad_token_id": None, "eos_token_id": None})], ids=["qwen2", "olmo2"])
def test_a_packed_folder_is_the_model_it_stands_for(tmp_path, family, changes):
    _, packed, whole = folders(tmp_path, family, **changes)
    tokens = torch.randint(0, model_folders.VOCABULARY, (2, 16), generator=torch.Generator().manual_seed(1))
    ours = [model_folders.run_tool(folder, tokens, tokens.clone(), tmp_path)["logits"] for folder in (packed, whole)]
    assert torch.equal(*ours)
    theirs = model_folders.load_without_warnings(whole)(tokens).logits.detach()
    assert (ours[0] - theirs).abs().max() < 1e-4


def losses(tmp_path, name, folder, *settings):
    command = [BUILD / "bin" / "lockstep", "train", "--output", tmp_path, "--name", name, f"model.path={folder}", "model.dtype=f32", "--device", "cpu",
               "lora.enabled=true", "lora.rank=4", "data.kind=random", "data.seq_len=32", "trainer.batch_size=4", "trainer.max_steps=6",
               "trainer.log_interval=1", "trainer.learning_rate=0.01", "monitor.sample_tokens=0", *settings]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def test_training_on_four_bits_is_training_on_what_they_stand_for(tmp_path):
    plain, packed, whole = folders(tmp_path)
    expected = losses(tmp_path, "whole", whole)
    assert len(expected) == 6 and expected[-1] != expected[0]
    assert losses(tmp_path, "quantized_while_read", plain, "model.load_in_4bit=true") == expected
    assert losses(tmp_path, "read_packed", packed, "model.load_in_4bit=true", "trainer.recompute=blocks") == expected
    assert losses(tmp_path, "made_whole", packed) == expected


def test_merge_into_packed_weights_gives_whole_ones(tmp_path):
    _, packed, whole = folders(tmp_path)
    losses(tmp_path, "run", packed, "model.load_in_4bit=true")
    merged = []
    for folder in (packed, whole):
        command = [BUILD / "bin" / "lockstep", "merge", "--model", folder, "--adapter", tmp_path / "run" / "adapter", "--output", tmp_path / f"merged_{folder.name}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        merged.append(load_file(tmp_path / f"merged_{folder.name}" / "model.safetensors"))
    assert merged[0].keys() == merged[1].keys()
    assert all(same(merged[0][name], merged[1][name]) for name in merged[0])
    name = "model.layers.0.mlp.up_proj.weight"
    assert not torch.equal(merged[0][name], load_file(whole / "model.safetensors")[name]), "the adapter changed it"
    assert "quantization_config" not in json.loads((tmp_path / "merged_packed" / "config.json").read_text())


def test_writes_what_bitsandbytes_reads(tmp_path):
    """A folder exported in four bits holds, matrix by matrix, what bitsandbytes makes of the weights, and is read back as such."""
    folder = model_folders.save(model_folders.make_model("Llama"), tmp_path / "start", dtype="bfloat16")
    adapter = tmp_path / "adapter"
    torch.manual_seed(1)
    get_peft_model(model_folders.make_model("Llama"), LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(adapter)  # changes nothing yet
    done = subprocess.run([BUILD / "bin" / "lockstep", "merge", "--model", folder, "--adapter", adapter, "--output", tmp_path / "packed", "--load-in-4bit",
                           "--max-shard-size", "20KB"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "packed" / "config.json").read_text())
    assert config["quantization_config"]["bnb_4bit_quant_type"] == "nf4"
    files = sorted((tmp_path / "packed").glob("*.safetensors"))
    assert len(files) > 1
    packed = {}
    for file in files:
        packed.update(load_file(file))
    weights = load_file(folder / "model.safetensors")
    seen = 0
    for name, weight in weights.items():
        if not name.endswith("_proj.weight"):
            assert torch.equal(packed[name], weight), name
            continue
        parts = {key.removeprefix(name + "."): value for key, value in packed.items() if key.startswith(name + ".")}
        state = bnb.QuantState.from_dict({f"x.{key}": value for key, value in parts.items()}, device=torch.device("cpu"))
        codes, expected = bnb.quantize_4bit(weight, blocksize=64, compress_statistics=True, quant_type="nf4")
        assert torch.equal(packed[name], codes), name
        restored = bnb.dequantize_4bit(packed[name], state)
        assert restored.shape == weight.shape and restored.dtype == torch.bfloat16
        torch.testing.assert_close(restored, bnb.dequantize_4bit(codes, expected), rtol=1e-2, atol=1e-3)
        seen += 1
    assert seen == 14

    tokens = torch.randint(0, model_folders.VOCABULARY, (2, 16))
    ours = model_folders.run_tool(tmp_path / "packed", tokens, tokens.clone(), tmp_path)["logits"]
    reread = subprocess.run([BUILD / "bin" / "lockstep", "merge", "--model", tmp_path / "packed", "--adapter", adapter, "--output", tmp_path / "whole"],
                            capture_output=True, text=True, timeout=120)
    assert reread.returncode == 0, reread.stderr
    with torch.no_grad():
        expected = model_folders.load_without_warnings(tmp_path / "whole", dtype=torch.float32)(tokens).logits
    torch.testing.assert_close(ours, expected, rtol=0, atol=0.05)  # the whole folder is rounded to bf16 once more: 2^-9 of each weight, through two layers
