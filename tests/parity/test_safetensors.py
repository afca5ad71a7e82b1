"""Our safetensors files against the format's own library: it reads ours, we read its, and both refuse the same broken ones."""

import json
import os
import pathlib
import struct
import subprocess

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", ROOT / "build")) / "bin" / "safetensors_tool"

DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
    "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool,
}  # fmt: skip


def tool(verb, path):
    return subprocess.run([TOOL, verb, path], capture_output=True, text=True, timeout=60)


def crc32c(data):
    table = []
    for i in range(256):
        for _ in range(8):
            i = (i >> 1) ^ (0x82F63B78 if i & 1 else 0)
        table.append(i)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def raw_bytes(tensor):
    return bytes(tensor.contiguous().view(-1).view(torch.uint8).tolist()) if tensor.numel() else b""


def test_library_reads_ours(tmp_path):
    path = tmp_path / "ours.safetensors"
    assert tool("write", path).returncode == 0
    tensors = load_file(path)
    assert len(tensors) == len(DTYPES) + 3
    for name, dtype in DTYPES.items():
        expected = torch.arange(105, dtype=torch.float32).remainder(2 if dtype == torch.bool else 128).to(dtype).view(7, 3, 5)
        assert tensors[name].dtype == dtype
        assert torch.equal(tensors[name], expected), name
    assert tensors["scalar"].shape == () and tensors["scalar"].item() == 2.5
    assert tensors["empty"].shape == (0, 4)
    assert torch.equal(tensors['name with "quotes" and \u00e9'], torch.ones(3))
    with safe_open(path, "pt") as file:
        assert file.metadata() == {"format": "pt", "step": "7"}


def test_we_read_the_librarys(tmp_path):
    generator = torch.Generator().manual_seed(5)
    tensors = {name: (torch.rand(3, 11, generator=generator) * 100).to(dtype) for name, dtype in DTYPES.items()}
    tensors["scalar"] = torch.tensor(1.5)
    tensors["empty"] = torch.empty(4, 0, 2)
    tensors["odd bytes"] = torch.arange(7, dtype=torch.uint8)
    path = tmp_path / "theirs.safetensors"
    save_file(tensors, path, metadata={"who": "the library"})
    listed = json.loads(tool("list", path).stdout)
    assert listed["metadata"] == {"who": "the library"}
    assert listed["tensors"].keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert listed["tensors"][name]["shape"] == list(tensor.shape), name
        assert listed["tensors"][name]["crc32c"] == crc32c(raw_bytes(tensor)), name


def entry(dtype="F32", shape=(2,), begin=0, end=8):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


BROKEN = {
    "too short": b"\x01\x02",
    "header past the end": struct.pack("<Q", 1000) + b"{}",
    "huge header": struct.pack("<Q", 2**63) + b"{}",
    "no json": struct.pack("<Q", 5) + b"{abc}",
    "past the data": {"a": entry(end=4000, shape=(1000,))},
    "wrong size": {"a": entry(shape=(3,))},
    "overlap": {"a": entry(), "b": entry(begin=4, end=12)},
    "gap": {"a": entry(begin=4, end=12)},
    "bytes at the end": {"a": entry(end=4, shape=(1,))},
    "unknown type": {"a": entry(dtype="X7")},
    "backwards": {"a": entry(begin=8, end=0)},
    "overflow": {"a": entry(shape=(2**40, 2**40))},
}


@pytest.mark.parametrize("name", BROKEN)
def test_both_refuse(tmp_path, name):
    content = BROKEN[name]
    if isinstance(content, dict):
        header = json.dumps(content).encode()
        content = struct.pack("<Q", len(header)) + header + bytes(8 if name != "overlap" else 12)
    path = tmp_path / "broken.safetensors"
    path.write_bytes(content)
    with pytest.raises((SafetensorError, ValueError, OverflowError)):
        load_file(path)
    ours = tool("list", path)
    assert ours.returncode == 5, ours.stdout
    assert ours.stderr.startswith(f"[checkpoint] {path} is damaged"), ours.stderr
