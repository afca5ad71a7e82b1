"""Man pages, `lockstep launch`, `lockstep info`, and the scripts."""
import json
import os
import pathlib
import shutil
import subprocess
import time

import pytest

from support.lockstep import LOCKSTEP, ROOT, write_config
from support.network import free_port, own_address

SCRIPTS = ROOT / "scripts"


def run(*command, **more):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120, **more)


def test_man_pages(tmp_path):
    done = run(LOCKSTEP, "completion", "--man-pages", tmp_path)
    assert done.returncode == 0, done.stderr
    pages = {path.name for path in tmp_path.iterdir()}
    assert {"lockstep.1", "lockstep-train.1", "lockstep-check.1", "lockstep-data-inspect.1"} <= pages
    text = (tmp_path / "lockstep-train.1").read_text()
    assert text.startswith(".TH lockstep\\-train 1\n") and "\\-\\-grad\\-accum" in text
    if shutil.which("groff"):
        for page in ("lockstep.1", "lockstep-train.1"):
            shown = run("groff", "-man", "-Tascii", "-ww", tmp_path / page)
            assert shown.returncode == 0 and not shown.stderr, shown.stderr


def test_completions_where_the_program_lies_in_a_folder_with_an_odd_name(tmp_path):
    folder = tmp_path / "o'brien's $HOME"
    folder.mkdir()
    shutil.copy(LOCKSTEP, folder)
    done = run(folder / "lockstep", "completion", "bash")
    assert done.returncode == 0 and "--grad-accum" in done.stdout and done.stdout == run(LOCKSTEP, "completion", "bash").stdout, done.stderr


def launch(tmp_path, *args, text=""):
    return run(LOCKSTEP, "launch", *args, input=text, env={**os.environ, "LOCKSTEP_LAUNCH": str(tmp_path / "answers.json")}, cwd=tmp_path)


def test_launch_keeps_answers_and_uses_them(tmp_path):
    assert launch(tmp_path, "--print").returncode == 2, "nothing was answered yet"
    config = write_config(tmp_path)
    done = launch(tmp_path, "config", text=f"3\nno-such-file\n{config}\nslurm\nlockstep\n\n")
    assert done.returncode == 0 and "there is no file no-such-file" in done.stdout and "'slurm' is none of" in done.stdout, done.stdout + done.stderr
    assert json.loads((tmp_path / "answers.json").read_text()) == {"gpus": "3", "config": str(config), "launcher": "lockstep", "backend": "auto"}
    printed = launch(tmp_path, "--print", "--max-steps", "2").stdout.split()
    assert printed[1:] == ["train", "-f", str(config), "--num-gpus", "3", "--max-steps", "2"]
    assert launch(tmp_path, "config", "--yes", "--gpus", "all").returncode == 0
    spaced = config.rename(tmp_path / "my run.yaml")
    assert launch(tmp_path, "config", "--yes", "--config", "my run.yaml").returncode == 0
    assert launch(tmp_path, "--print").stdout.endswith(f"lockstep train -f '{spaced}'\n"), "it can be pasted"
    done = launch(tmp_path, "--device", "cpu", "--max-steps", "2", "--ranks", "2", "--output", tmp_path / "runs", "--name", "x")
    assert done.returncode == 0 and (tmp_path / "runs/x/metrics.jsonl").exists(), done.stdout + done.stderr


@pytest.mark.parametrize("launcher,begins", [("torchrun", ["torchrun", "--standalone"]), ("srun", ["srun", "--ntasks=2"]), ("mpirun", ["mpirun", "-n", "2"])])
def test_launch_through_others(tmp_path, launcher, begins):
    assert launch(tmp_path, "config", "--yes", "--gpus", "2", "--launcher", launcher).returncode == 0
    words = launch(tmp_path, "--print").stdout.split()
    assert words[: len(begins)] == begins and words[-2:] == [str(LOCKSTEP.resolve()), "train"]


def test_launch_takes_nothing_for_an_answer_where_nobody_answers(tmp_path):
    for text in ("", "2\n", "maybe\n"):
        done = launch(tmp_path, "config", text=text)
        assert done.returncode == 2 and "the input ended before this was answered" in done.stderr and not (tmp_path / "answers.json").exists()
    assert launch(tmp_path, "config", "--config", "nano", text="\n\n\n").returncode == 0, "files that come along have short names"
    assert launch(tmp_path, "--print").stdout.endswith("train -f nano\n")


def test_launch_refuses_what_is_none(tmp_path):
    done = launch(tmp_path, "config", "--yes", "--launcher", "slurm")
    assert done.returncode == 2 and "'slurm' is none of lockstep, torchrun, srun, mpirun" in done.stderr
    (tmp_path / "answers.json").write_text("{")
    done = launch(tmp_path, "--print")
    assert done.returncode == 2 and "is damaged" in done.stderr


def test_info():
    done = run(LOCKSTEP, "info", "--json", env={**os.environ, "NCCL_DEBUG": "INFO", "HSA_X": "1", "LOCKSTEP_SECRET": "not to be shown"})
    info = json.loads(done.stdout)
    variables = {one["name"]: one for one in info["variables"]}
    assert info["versions"]["libtorch"].startswith("2.11.0") and info["machine"]["cores"] >= 1
    assert "ranks/N.log" in variables["NCCL_DEBUG"]["does"] and "ROCm" in variables["HSA_X"]["does"]
    assert "not to be shown" not in done.stdout
    text = run(LOCKSTEP, "info").stdout
    for title in ("versions", "machine", "devices", "variables that matter"):
        assert f"{title}\n" in text


def ranks_at_work(folder, seconds=120):
    """What `lockstep info` says of a run, once both of its ranks have made a step."""
    deadline = time.monotonic() + seconds
    while True:
        done = run(LOCKSTEP, "info", folder, "--json")
        table = json.loads(done.stdout) if done.returncode == 0 else {"ranks": []}
        if len(table["ranks"]) == 2 and all(row["step"] > 0 for row in table["ranks"]):
            return table
        assert time.monotonic() < deadline, done.stdout + done.stderr
        time.sleep(0.2)


def test_info_inside_a_run(tmp_path):
    config = write_config(tmp_path, trainer={"max_steps": 100000, "log_interval": 100})
    with subprocess.Popen([LOCKSTEP, "train", "-f", config, "--device", "cpu", "--ranks", "2", "--output", tmp_path, "--name", "r", "parallel.shard=full"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
        try:
            table = ranks_at_work(tmp_path / "r")
            assert table["world_size"] == 2 and table["spread"] == "shard 2"
            for rank, row in enumerate(table["ranks"]):
                assert row["rank"] == rank and row["device"] == "CPU" and row["groups"] == f"shard {rank}"
                assert pathlib.Path(f"/proc/{row['pid']}/cmdline").read_bytes().split(b"\0")[0].endswith(b"lockstep-worker")
            shown = run(LOCKSTEP, "info", "r", "--output", tmp_path).stdout
            assert "shard 1" in shown and str(table["ranks"][1]["pid"]) in shown
            assert str(tmp_path / "r") in run(LOCKSTEP, "info").stdout
        finally:
            job.terminate()
            job.wait(60)
    done = run(LOCKSTEP, "info", tmp_path / "r")
    assert done.returncode == 2 and "nobody trains" in done.stderr


def test_info_of_a_run_on_two_machines(tmp_path):
    """Each launcher knows its own rank; the other machine's comes from the run folder."""
    config = write_config(tmp_path, trainer={"max_steps": 100000, "log_interval": 100})
    words = [LOCKSTEP, "train", "-f", config, "--device", "cpu", "--ranks", "1", "--output", tmp_path, "--name", "r", "--nnodes", "2", "--master-addr", own_address(),
             "--port", free_port()]
    env = {**os.environ, "LOCKSTEP_SECRET": "0123456789abcdef"}
    jobs = [subprocess.Popen([str(word) for word in [*words, "--node-rank", node]], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for node in (0, 1)]
    try:
        rows = ranks_at_work(tmp_path / "r")["ranks"]
        assert [(row["rank"], row["groups"], row["device"]) for row in rows] == [(0, "replicate 0", "CPU"), (1, "replicate 1", "CPU")]
        assert rows[0]["pid"] != rows[1]["pid"] and all(row["pid"] > 0 and row["phase"] for row in rows)
    finally:
        jobs[0].terminate()
        for job in jobs:
            job.wait(60)


def test_scripts_are_thin_over_verbs(tmp_path):
    config = write_config(tmp_path)
    done = run(SCRIPTS / "train_multi_gpu.sh", "--config-path", config, "--spawn", "--port", free_port(), "--distributed-backend", "gloo", "--distributed-data-loading",
               "--device", "cpu", "--ranks", "2", "--max-steps", "2", "--output", tmp_path, "--name", "s", env={**os.environ, "LOCKSTEP": str(LOCKSTEP)})
    assert done.returncode == 0 and (tmp_path / "s/metrics.jsonl").exists(), done.stdout + done.stderr
    done = run(SCRIPTS / "train_multi_gpu.sh", "--dry-run", "--num-gpus", "64", env={**os.environ, "LOCKSTEP": str(LOCKSTEP)})
    assert done.returncode in (2, 3) and "GPU" in done.stderr
    (tmp_path / "linked here").symlink_to(SCRIPTS / "check_multi_gpu.sh")
    done = run(tmp_path / "linked here", "--only", "memory", env={**os.environ, "LOCKSTEP": str(LOCKSTEP)})
    assert done.returncode in (0, 1) and "memory" in done.stdout


def test_start_multi_gpu_asks_and_starts(tmp_path):
    config = write_config(tmp_path)
    env = {**os.environ, "LOCKSTEP": str(LOCKSTEP), "LOCKSTEP_LAUNCH": str(tmp_path / "answers.json")}
    more = ["--device", "cpu", "--ranks", "2", "--max-steps", "2", "--output", tmp_path]
    done = run(SCRIPTS / "start-multi-gpu.sh", *more, "--name", "a", input=f"all\n{config}\nlockstep\nauto\n", env=env)
    assert done.returncode == 0 and "Use all GPUs?" in done.stdout and (tmp_path / "a/metrics.jsonl").exists(), done.stdout + done.stderr
    done = run(SCRIPTS / "start-multi-gpu.sh", "--again", *more, "--name", "b", "--dry-run", env=env)
    assert done.returncode == 0 and "Use all GPUs?" not in done.stdout


def test_run_all_scripts_say_what_is_missing():
    env = {**os.environ, "LOCKSTEP": str(LOCKSTEP)}
    done = run(SCRIPTS / "run_amd_all.sh", "-f", "my run.yaml", env=env)
    assert done.returncode == 3 and "a ROCm build of lockstep" in done.stderr and "LS-214" in done.stderr
    assert "train --device cpu -f my\\ run.yaml" in done.stderr, "it can be pasted"
    if not pathlib.Path("/proc/driver/nvidia/version").exists() and not shutil.which("nvidia-smi"):
        done = run(SCRIPTS / "run_nvidia_all.sh", env=env)
        assert done.returncode == 3 and "no NVIDIA driver" in done.stderr
    done = run(SCRIPTS / "check_multi_gpu.sh", env={"PATH": "/usr/bin:/bin", "LOCKSTEP": "/nowhere/lockstep"})
    assert done.returncode != 0


def test_scripts_for_other_launchers_find_the_program_from_anywhere(tmp_path):
    """With a launcher that shows what it was given; Slurm's runs a copy of its script."""
    bin = tmp_path / "bin"
    bin.mkdir()
    for name in ("torchrun", "srun", "lockstep"):
        (bin / name).write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        (bin / name).chmod(0o755)
    env = {"PATH": f"{bin}:/usr/bin:/bin", "LOCKSTEP": str(LOCKSTEP)}
    said = run(SCRIPTS / "torchrun.sh", "--nproc-per-node=2", "--", "-f", "my run.yaml", env=env, cwd=tmp_path).stdout.splitlines()
    assert said == ["--no-python", "--nproc-per-node=2", str(LOCKSTEP), "train", "-f", "my run.yaml"]
    shutil.copy(SCRIPTS / "slurm.sbatch", tmp_path / "spooled")
    for variables, program in ((env, str(LOCKSTEP)), ({"PATH": env["PATH"]}, "lockstep")):
        said = run("bash", tmp_path / "spooled", "-f", "my run.yaml", env=variables, cwd=tmp_path).stdout.splitlines()
        assert said[2:] == [program, "train", "-f", "my run.yaml"]
    done = run(SCRIPTS / "torchrun.sh", env={"PATH": "/usr/bin:/bin", "LOCKSTEP": str(LOCKSTEP)}, cwd=tmp_path)
    assert done.returncode == 3 and "torchrun is not on PATH" in done.stderr
