"""`lockstep explain`, codes in reports and errors, and that docs tell of every code."""
import json
import subprocess

import pytest

from support.lockstep import LOCKSTEP, ROOT, train, write_config

LOG = """step 1 loss 3.2
[rank1]: RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:45
[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""


def explain(*args, text=None):
    done = subprocess.run([LOCKSTEP, "explain", *args], input=text if text is not None else "", capture_output=True, text=True, timeout=30)
    return done.returncode, done.stdout, done.stderr


def test_a_code_in_any_spelling():
    for code in ("LS-401", "ls-401", "401"):
        status, out, _ = explain(code)
        assert status == 0 and out.startswith("LS-401  GPU memory is full\n") and "--grad-accum" in out
    status, _, err = explain("LS-999")
    assert status == 2 and "there is no code LS-999" in err


def test_a_log_from_standard_input_from_a_file_and_a_message(tmp_path):
    (tmp_path / "log").write_text(LOG)
    for status, out, _ in (explain(text=LOG), explain(str(tmp_path / "log"))):
        assert status == 0 and out.index("LS-401") < out.index("LS-308"), "the cause comes first"
        assert "3: [rank0]: torch.OutOfMemoryError" in out or "line 3: [rank0]: torch.OutOfMemoryError" in out
    status, out, _ = explain("RuntimeError: No CUDA GPUs are available")
    assert status == 0 and "LS-201" in out
    status, out, _ = explain("out of memory")  # no message, but words that entries have
    assert status == 2 and "These speak of it" in out and "LS-401  GPU memory is full" in out
    assert "LS-302  NCCL could not start" in explain("nccl")[1] and "neither a code nor a file" in explain("nothing.log")[2]
    status, out, _ = explain(text="all went well\n")
    assert status == 2 and "Nothing in it is known" in out
    found = json.loads(explain("--json", text=LOG)[1])
    assert [(one["code"], one["line"], one["times"]) for one in found] == [("LS-401", 3, 1), ("LS-308", 2, 2)]


def test_binary_and_huge_logs(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"\xff\x00\x1b[31m junk\n" * 200_000 + b"CUDA out of memory\n" + b"x" * 3_000_000)
    status, out, _ = explain(str(path))
    assert status == 0 and "LS-401" in out and "\x1b" not in out
    assert explain("--json", str(path))[0] == 0


def test_a_run_that_failed_carries_its_code(tmp_path):
    run = train(tmp_path, "broken", write_config(tmp_path), "--ranks", "2", env={"LOCKSTEP_TEST_FAULT": "rank=1 step=3 phase=forward action=kill"}, check=False)
    assert run.code == 6
    assert "\n  LS-605 Ended from outside: `lockstep explain LS-605` says more.\n" in run.err
    status, out, _ = explain(str(run.folder))
    assert status == 0 and out.index("LS-605") < out.index("LS-308"), "the report at the end, and what the other rank noticed"


@pytest.mark.parametrize("args,env,code", [
    (["train", "--device", "cpu", "--output", "/proc/runs", "--max-steps", "1"], {}, "LS-407"),
    (["train", "--device", "cuda", "--gpus", "77"], {}, "LS-2"),
    (["train", "--device", "cpu"], {"LOCKSTEP_LIBTORCH": "/nowhere"}, "LS-102"),
])
def test_errors_end_with_their_code(tmp_path, args, env, code):
    import os

    done = subprocess.run([LOCKSTEP, *args], env={**os.environ, **env}, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    last = done.stderr.rstrip().splitlines()[-1]
    assert done.returncode != 0 and last.startswith(code) and last.endswith(f"`lockstep explain {last[:6]}` says more."), done.stderr


def test_docs_tell_of_every_code():
    entries = json.loads(explain("--json")[1])
    assert len(entries) > 50 and len({entry["code"] for entry in entries}) == len(entries)
    text = (ROOT / "docs/errors.md").read_text()
    for entry in entries:
        assert f"### {entry['code']} {entry['title']}" in text, entry["code"]
    status, out, _ = explain()
    assert status == 0 and all(entry["code"] in out for entry in entries)
