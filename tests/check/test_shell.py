"""Completions in real shells, man pages, `lockstep launch`, `lockstep info`, and the scripts."""
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


@pytest.fixture(scope="module")
def bash_script(tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "bash"
    done = run(LOCKSTEP, "completion", "bash")
    assert done.returncode == 0, done.stderr
    path.write_text(done.stdout)
    return path


def complete(script, *words, cwd=None):
    """What bash offers for the last of these words."""
    code = f'source {script}; COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); _lockstep; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = run("bash", "-uc", code, "bash", "lockstep", *words, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("words,offers", [
    (["tr"], {"train"}),
    (["che"], {"check"}),
    (["help", "exp"], {"export", "explain"}),
    (["train", "--dev"], {"--device"}),
    (["train", "--device", ""], {"auto", "cuda", "cpu"}),
    (["train", "--sync-backend", "n"], {"nccl"}),
    (["train", "--no-distributed-d"], {"--no-distributed-data-loading"}),
    (["bench", "co"], {"comm"}),
    (["bench", "comm", "--si"], {"--sizes"}),
    (["config", "exp"], {"explain"}),
    (["data", "tok"], {"tokenize"}),
    (["explain", "LS-40"], {f"LS-40{i}" for i in range(1, 10)}),
    (["completion", "f"], {"fish"}),
    (["ask", "run", "sa"], {"save", "sample"}),
])
def test_bash_offers(bash_script, tmp_path, words, offers):
    assert set(complete(bash_script, *words, cwd=tmp_path)) == offers


def test_bash_offers_files_and_runs(bash_script, tmp_path):
    (tmp_path / "model.yaml").touch()
    (tmp_path / "runs/first").mkdir(parents=True)
    assert "model.yaml" in complete(bash_script, "train", "-f", "mod", cwd=tmp_path)
    assert "first" in complete(bash_script, "ask", "fi", cwd=tmp_path)


def test_every_verb_and_flag_is_offered(bash_script):
    verbs = {line.split()[1] for line in run(LOCKSTEP, "--help").stdout.splitlines() if line.startswith("  lockstep ") and line.split()[1].islower()}
    assert verbs <= set(complete(bash_script, ""))
    offered = set(complete(bash_script, "train", "--"))
    for line in run(LOCKSTEP, "train", "--help").stdout.splitlines():
        if line.startswith("  --") and "[no-]" not in line:
            assert line.split()[0].rstrip(",") in offered, line


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_read_their_script(shell, tmp_path):
    script = tmp_path / "script"
    script.write_text(run(LOCKSTEP, "completion", shell).stdout)
    assert "sync-backend" in script.read_text() and "LS-401" in script.read_text()
    if not shutil.which(shell):
        return  # read by whoever has it; bash's is tried above
    assert run(shell, "-n", script).returncode == 0


def test_an_unknown_shell():
    done = run(LOCKSTEP, "completion", "tcsh")
    assert done.returncode == 2 and "bash, zsh and fish" in done.stderr


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
    done = launch(tmp_path, "--device", "cpu", "--max-steps", "2", "--ranks", "2", "--output", tmp_path / "runs", "--name", "x")
    assert done.returncode == 0 and (tmp_path / "runs/x/metrics.jsonl").exists(), done.stdout + done.stderr


@pytest.mark.parametrize("launcher,begins", [("torchrun", ["torchrun", "--standalone"]), ("srun", ["srun", "--ntasks=2"]), ("mpirun", ["mpirun", "-n", "2"])])
def test_launch_through_others(tmp_path, launcher, begins):
    assert launch(tmp_path, "config", "--yes", "--gpus", "2", "--launcher", launcher).returncode == 0
    words = launch(tmp_path, "--print").stdout.split()
    assert words[: len(begins)] == begins and words[-2:] == [str(LOCKSTEP.resolve()), "train"]


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


def test_info_inside_a_run(tmp_path):
    config = write_config(tmp_path, trainer={"max_steps": 100000, "log_interval": 100})
    with subprocess.Popen([LOCKSTEP, "train", "-f", config, "--device", "cpu", "--ranks", "2", "--output", tmp_path, "--name", "r", "parallel.shard=full"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
        try:
            table = {}
            for _ in range(100):
                done = run(LOCKSTEP, "info", tmp_path / "r", "--json")
                table = json.loads(done.stdout) if done.returncode == 0 else {}
                if len(table.get("ranks", [])) == 2 and table["ranks"][1]["step"] > 0:
                    break
                time.sleep(0.2)
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
        rows = []
        for _ in range(150):
            done = run(LOCKSTEP, "info", tmp_path / "r", "--json")
            rows = json.loads(done.stdout)["ranks"] if done.returncode == 0 else []
            if len(rows) == 2 and all(row["step"] > 0 for row in rows):
                break
            time.sleep(0.2)
        assert [(row["rank"], row["groups"], row["device"]) for row in rows] == [(0, "replicate 0", "CPU"), (1, "replicate 1", "CPU")]
        assert rows[0]["pid"] != rows[1]["pid"] and all(row["pid"] > 0 and row["phase"] for row in rows)
    finally:
        jobs[0].terminate()
        for job in jobs:
            job.wait(60)


def test_scripts_are_thin_over_verbs(tmp_path):
    config = write_config(tmp_path)
    done = run(SCRIPTS / "train_multi_gpu.sh", "--config-path", config, "--spawn", "--port", "29633", "--distributed-backend", "gloo", "--distributed-data-loading",
               "--device", "cpu", "--ranks", "2", "--max-steps", "2", "--output", tmp_path, "--name", "s", env={**os.environ, "LOCKSTEP": str(LOCKSTEP)})
    assert done.returncode == 0 and (tmp_path / "s/metrics.jsonl").exists(), done.stdout + done.stderr
    done = run(SCRIPTS / "train_multi_gpu.sh", "--dry-run", "--num-gpus", "64", env={**os.environ, "LOCKSTEP": str(LOCKSTEP)})
    assert done.returncode in (2, 3) and "GPU" in done.stderr
    done = run(SCRIPTS / "check_multi_gpu.sh", "--only", "memory", env={**os.environ, "LOCKSTEP": str(LOCKSTEP)})
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
    done = run(SCRIPTS / "run_amd_all.sh", "-f", "x.yaml", env=env)
    assert done.returncode == 3 and "a ROCm build of lockstep" in done.stderr and "LS-214" in done.stderr
    if not pathlib.Path("/proc/driver/nvidia/version").exists() and not shutil.which("nvidia-smi"):
        done = run(SCRIPTS / "run_nvidia_all.sh", env=env)
        assert done.returncode == 3 and "no NVIDIA driver" in done.stderr
    done = run(SCRIPTS / "check_multi_gpu.sh", env={"PATH": "/usr/bin:/bin", "LOCKSTEP": "/nowhere/lockstep"})
    assert done.returncode != 0


def test_batch_files_have_their_twin():
    for path in SCRIPTS.glob("*.bat"):
        text = path.read_bytes()
        assert (SCRIPTS / f"{path.stem}.sh").exists() and f"bash scripts/{path.stem}.sh %*".encode() in text
        assert text.count(b"\n") == text.count(b"\r\n"), "cmd.exe wants both"
    scripts = {path.stem for path in SCRIPTS.glob("*.sh")} - {"lockstep", "torchrun"}
    assert scripts == {path.stem for path in SCRIPTS.glob("*.bat")}
