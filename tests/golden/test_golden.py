"""Not one bit of a training run changes by accident: every case of golden.py against its file."""
import json

import pytest

from cases import CASES, ON_A_GPU_ALONE
from golden import HERE, KINDS, has, run

# What every kind trains; the others are of the kind that every x86 machine of the last ten years has.
EVERYWHERE = {"untied", "bf16", "lora-dropout", "nf4", "adamw-8bit", "muon", "packed"}


@pytest.mark.parametrize("kind,case", [(kind, case) for kind in KINDS for case in CASES if kind == "avx2" or case in EVERYWHERE])
def test_not_a_bit_has_changed(tmp_path, kind, case):
    if not has(kind):
        pytest.skip(f"this CPU has no {kind}")
    golden = json.loads((HERE / f"{kind}.json").read_text())[case]
    now = run(kind, case, tmp_path)
    for what in ("loss", "grad_norm"):
        for step, (before, after) in enumerate(zip(golden[what], now[what], strict=True), 1):
            assert after == before, f"{what} of step {step}: {float.fromhex(before)!r} became {float.fromhex(after)!r}"
    assert now["tensors"] == golden["tensors"]


def test_the_files_hold_every_case_and_no_other():
    for kind in KINDS:
        assert json.loads((HERE / f"{kind}.json").read_text()).keys() == CASES.keys(), kind
    of_gpus = list(HERE.glob("gpu-*.json"))  # made and compared by tests/gpu/unchanged.py
    assert of_gpus
    for path in of_gpus:
        assert json.loads(path.read_text()).keys() == CASES.keys() | ON_A_GPU_ALONE.keys(), path
