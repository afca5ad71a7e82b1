"""Our safetensors files against the format's own library: it reads ours, we read its, and both refuse the same broken ones."""

import json
import os
import pathlib
import struct
import subprocess

import numpy
import pytest
from safetensors import SafetensorError, deserialize, safe_open
from safetensors.numpy import save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", ROOT / "build")) / "bin" / "safetensors_tool"

# What the tool calls a tensor, what the library calls its type, what the format's header does.
DTYPES = {
    "f64": ("float64", "F64"), "f32": ("float32", "F32"), "f16": ("float16", "F16"), "bf16": ("bfloat16", "BF16"),
    "i64": ("int64", "I64"), "i32": ("int32", "I32"), "i16": ("int16", "I16"), "i8": ("int8", "I8"),
    "u8": ("uint8", "U8"), "bool": ("bool", "BOOL"),
}  # fmt: skip


def raw_bytes(numbers, dtype):
    if dtype == "bfloat16":  # the upper half of a float, exact for what these tests use
        return (numpy.asarray(numbers, "float32").view("uint32") >> 16).astype("uint16").tobytes()
    return numpy.asarray(numbers).astype(dtype).tobytes()


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


def test_library_reads_ours(tmp_path):
    path = tmp_path / "ours.safetensors"
    assert tool("write", path).returncode == 0
    tensors = dict(deserialize(path.read_bytes()))
    assert len(tensors) == len(DTYPES) + 3
    for name, (dtype, written) in DTYPES.items():
        numbers = numpy.arange(105, dtype="float32") % (2 if name == "bool" else 128)
        assert tensors[name]["dtype"] == written
        assert tensors[name]["shape"] == [7, 3, 5]
        assert bytes(tensors[name]["data"]) == raw_bytes(numbers, dtype), name
    assert tensors["scalar"]["shape"] == [] and bytes(tensors["scalar"]["data"]) == struct.pack("<f", 2.5)
    assert tensors["empty"]["shape"] == [0, 4]
    assert bytes(tensors['name with "quotes" and \u00e9']["data"]) == struct.pack("<3f", 1, 1, 1)
    with safe_open(path, "numpy") as file:
        assert file.metadata() == {"format": "pt", "step": "7"}
        assert file.get_tensor("i32").tolist() == numpy.arange(105).reshape(7, 3, 5).tolist()


def test_we_read_the_librarys(tmp_path):
    numbers = {name: numpy.arange(33).reshape(3, 11) % (2 if name == "bool" else 128) for name in DTYPES}
    tensors = {name: numbers[name].astype(dtype) for name, (dtype, _) in DTYPES.items() if dtype != "bfloat16"}  # numpy has none
    tensors["scalar"] = numpy.array(1.5, "float32")
    tensors["empty"] = numpy.empty((4, 0, 2), "float32")
    tensors["odd bytes"] = numpy.arange(7, dtype="uint8")
    path = tmp_path / "theirs.safetensors"
    save_file(tensors, path, metadata={"who": "the library"})
    listed = json.loads(tool("list", path).stdout)
    assert listed["metadata"] == {"who": "the library"}
    assert listed["tensors"].keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert listed["tensors"][name]["shape"] == list(tensor.shape), name
        assert listed["tensors"][name]["crc32c"] == crc32c(tensor.tobytes()), name
        assert name not in DTYPES or listed["tensors"][name]["dtype"] == DTYPES[name][1]


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
    with pytest.raises(SafetensorError):
        deserialize(content)
    ours = tool("list", path)
    assert ours.returncode == 5, ours.stdout
    assert ours.stderr.startswith(f"[checkpoint] {path} is damaged"), ours.stderr
