"""Starts the real `lockstep` on tiny models and reads what a run leaves behind."""
import dataclasses
import json
import os
import pathlib
import subprocess

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", ROOT / "build")).absolute()
LOCKSTEP = BUILD / "bin" / "lockstep"

# Small enough that starting a process costs more than training it.
TINY_MODEL = {
    "name": "tiny", "hidden_size": 32, "num_layers": 2, "num_heads": 4, "kv_heads": 2, "intermediate_size": 64,
    "vocab_size": 67, "max_seq_len": 16, "tie_embeddings": False,
}


def write_config(folder: pathlib.Path, name: str = "config.yaml", **sections) -> pathlib.Path:
    """sections: trainer={...}, data={...}, model={...}; the tiny model and sensible test values are filled in."""
    config = {
        "model": {**TINY_MODEL, **sections.pop("model", {})},
        "data": {"kind": "random", "random_tokens": 16 * 200, "validation_fraction": 0.1, **sections.pop("data", {})},
        "trainer": {"learning_rate": 0.003, "lr_schedule": "cosine", "warmup_steps": 3, "max_steps": 20, "log_interval": 1, "save_interval": 0,
                    "global_batch_size": 12, **sections.pop("trainer", {})},
        "monitor": {"sample_tokens": 0, **sections.pop("monitor", {})},
        **sections,
    }
    path = folder / name
    path.write_text(yaml.safe_dump(config))
    return path


def lines_of(path: pathlib.Path) -> list[dict]:
    """Of a file that someone may be writing: its whole lines."""
    return [json.loads(line) for line in path.read_text().rpartition("\n")[0].splitlines()] if path.exists() else []


@dataclasses.dataclass
class Result:
    code: int
    out: str
    err: str
    folder: pathlib.Path

    @property
    def text(self) -> str:
        return self.out + self.err

    def metrics(self) -> list[dict]:
        return lines_of(self.folder / "metrics.jsonl")

    def steps(self) -> dict[int, dict]:
        return {line["step"]: line for line in self.metrics() if "loss" in line}

    def losses(self) -> list[float]:
        return [line["loss"] for _, line in sorted(self.steps().items())]

    def checkpoint(self, step: int) -> pathlib.Path:
        return self.folder / "checkpoints" / f"step-{step:06}"

    def tensors(self, step: int, kind: str = "model") -> dict:
        from safetensors.torch import load_file

        merged = {}
        for path in sorted(self.checkpoint(step).glob(f"{kind}-*.safetensors")):
            merged.update(load_file(path))
        return merged


def train(folder: pathlib.Path, name: str, config: pathlib.Path, *args: str, env: dict | None = None, timeout: float = 120, check: bool = True) -> Result:
    command = [str(LOCKSTEP), "train", "-f", str(config), "--output", str(folder), "--name", name, "--device", "cpu", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=ROOT, env={**os.environ, **(env or {})})
    result = Result(done.returncode, done.stdout, done.stderr, folder / name)
    if check:
        assert done.returncode == 0, f"{' '.join(command)}\n{result.text}"
    return result
