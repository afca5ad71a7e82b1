"""Run folders as a launcher and its ranks leave them (docs/monitoring.md), made in a moment: for what a page shows of many or of long runs."""
import datetime
import json
import pathlib

BEGUN = datetime.datetime(2026, 1, 1)
PARTS = ("data", "forward", "backward", "communication", "optimizer", "checkpoint", "other")


def at(seconds: float) -> str:
    return (BEGUN + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def step_line(step: int, ranks: int = 2, **more) -> dict:
    return {"step": step, "loss": 2 + 8 / (step + 1), "grad_norm": 1.0 + step % 7 / 10, "learning_rate": 1e-3, "tokens": 1000 * step, "tokens_per_second": 1e4,
            "step_seconds": 0.1, "data_seconds": 0.001, "communication_seconds": 0.002, "memory_bytes": [1 << 30] * ranks, "mfu": 0.41, "time": at(step * 0.1),
            "rank_seconds": {part: [0.014] * ranks for part in PARTS}, **more}


def write_run(folder: pathlib.Path, steps: int, events=(), ranks: int = 2, **more) -> pathlib.Path:
    """`events`: further lines, each put behind its step; `more`: in every line of a step."""
    folder.mkdir(parents=True)
    lines = [{"event": "started", "step": 0, "time": at(0)}, {"event": "model", "total_steps": 2 * steps, "parameters": 1000, "backend": "gloo"}]
    lines += [step_line(step, ranks, **more) for step in range(1, steps + 1)]
    lines[2:] = sorted([*lines[2:], *events], key=lambda line: line["step"])
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def add_lines(folder: pathlib.Path, *lines: dict) -> None:
    with open(folder / "metrics.jsonl", "a") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))
