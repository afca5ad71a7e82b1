"""The tables of mistakes (*.json) through the program itself: exit code and exact text on standard error."""
import json
import os
import pathlib
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
LOCKSTEP = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", HERE.parent.parent / "build")) / "bin" / "lockstep"
CASES = [(table.stem, case) for table in sorted(HERE.glob("*.json")) for case in json.loads(table.read_text())]


@pytest.mark.parametrize("case", [case for _, case in CASES], ids=[f"{room}: {case['name']}" for room, case in CASES])
def test_mistake(case, tmp_path):
    if "file" in case:
        text = "\n".join(case["file"]) + "\n"
        (tmp_path / ("bad.json" if text.startswith("{") else "bad.yaml")).write_text(text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LOCKSTEP_")}
    result = subprocess.run(
        [LOCKSTEP, *case["args"]],
        cwd=tmp_path,
        env={**environment, **case.get("environment", {})},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.stderr.rstrip("\n") == "\n".join(case["error"])
    assert result.returncode == case["exit"]
    assert not (tmp_path / "runs").exists(), "a mistake must not leave a run folder"
