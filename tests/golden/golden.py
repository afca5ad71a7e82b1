#!/usr/bin/env python3
"""Golden numbers: losses, gradient norms and weights of 20 steps, to the last bit, for one case of everything that trains.

    python3 tests/golden/golden.py                 makes tests/golden/KIND.json for every kind of kernels this CPU has
    python3 tests/golden/golden.py --only lora     the same for cases whose name has this in it; the others stay as they are

The files are made by this script and never edited. A change of code that is not meant to change numbers leaves them as they are
(test_golden.py); one that is makes them anew in the same commit, whose subject says so and why.
"""
import argparse
import hashlib
import json
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from cases import CASES, in_words  # noqa: E402
from support.chat_model import write_tokenizer  # noqa: E402
from support.lockstep import Result, train, write_config  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
WIDE = ["model.hidden_size=64", "model.intermediate_size=96"]

# Libraries pick their loops by CPU: here each kind names those of ours, of ATen and of oneDNN, and MKL takes the ones that every CPU has.
KINDS = {
    "plain": {"needs": set(), "ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"},
    "avx2": {"needs": {"avx2", "fma", "f16c"}, "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "avx512": {"needs": {"avx512f", "avx512bw", "avx512vl", "avx512dq"}, "ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
}

def has(kind: str) -> bool:
    flags = set(next(line for line in open("/proc/cpuinfo") if line.startswith("flags")).split())
    return KINDS[kind]["needs"] <= flags


def write_records(folder: pathlib.Path) -> list[str]:
    lines = []
    for i in range(60):
        turns = [{"role": "user", "content": f"What is {i} plus {i % 7}?"}, {"role": "assistant", "content": f"It is {i + i % 7}." + " Sure." * (i % 5)}]
        lines.append(json.dumps({"messages": turns * (1 + i % 3)}))
    data = folder / "chat.jsonl"
    data.write_text("\n".join(lines) + "\n")
    return ["--data", str(data), "--tokenizer", str(write_tokenizer(folder / "tokenizer")), "data.kind=records", f"data.cache_dir={folder / 'cache'}",
            "model.vocab_size=260", "model.max_seq_len=256", "data.seq_len=240"]


def fingerprint(result: Result) -> dict[str, str]:
    """Of every tensor of the last checkpoint, its optimizer's states included: eight bytes each of SHA-256."""
    import torch

    found = {}
    for kind in ("model", "optimizer"):
        for name, tensor in sorted(result.tensors(20, kind).items()):
            data = tensor.contiguous().view(torch.uint8).numpy().tobytes()
            found[f"{kind}: {name}"] = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}".encode() + data).hexdigest()[:16]
    return found


def run(kind: str, case: str, folder: pathlib.Path) -> dict:
    env = {"LOCKSTEP_CPU_KERNELS": kind, "MKL_CBWR": "COMPATIBLE", **{key: value for key, value in KINDS[kind].items() if key != "needs"}}
    arguments = in_words(case, RECORDS=lambda: write_records(folder), WIDE=lambda: WIDE)
    if "--ranks" not in arguments:
        arguments += ["--ranks", "1"]
    result = train(folder, "run", write_config(folder), "--threads", "1", *arguments, env=env)
    steps = [result.steps()[step] for step in range(1, 21)]
    # hex(): every bit of a number, and none that printing made up.
    return {"loss": [float(step["loss"]).hex() for step in steps], "grad_norm": [float(step["grad_norm"]).hex() for step in steps],
            "tensors": fingerprint(result)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    wanted = parser.parse_args().only
    for kind in filter(has, KINDS):
        path = HERE / f"{kind}.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        made = {}
        for case in CASES:
            with tempfile.TemporaryDirectory() as folder:
                made[case] = run(kind, case, pathlib.Path(folder)) if wanted in case or case not in known else known[case]
            print(kind, case, "as before" if made[case] == known.get(case) else "new", flush=True)
        path.write_text(json.dumps(made, indent=0) + "\n")


if __name__ == "__main__":
    os.environ.pop("LOCKSTEP_CPU_KERNELS", None)
    main()
