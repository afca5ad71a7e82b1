"""`lockstep check`: every failure that it knows, provoked; a machine that is well; two machines that meet."""
import json
import os
import pathlib
import re
import resource
import socket
import subprocess

import pytest

from support.lockstep import BUILD, LOCKSTEP, ROOT
from support.network import free_port, own_address

TWO_GPUS = """gpus 2
driver 580.65.06
cuda 13000
*.name NVIDIA H200
*.memory 150000000000
0.bus 00000000:04:00.0
1.bus 00000000:05:00.0
*.major 9
*.minor 0
*.compute_mode 0
*.ecc 0
*.temperature 41
*.throttle 1
*.generation 5
*.generation_max 5
*.width 16
*.width_max 16
*.peer 0
*.link.0 1
*.link_version 4
*.remote_kind 2
*.remote.0 00000000:c0:00.0
"""


def run_check(*args, env=None, cwd=None, prefix=(), limits=None, timeout=120):
    """The results by name, the sum, the exit status, what went to standard error."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LOCKSTEP_", "NCCL_", "GLOO_", "CUDA_", "SLURM_", "OMPI_"))}
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        environment.pop(name, None)
    done = subprocess.run([*prefix, LOCKSTEP, "check", "--json", *args], env={**environment, **(env or {})}, cwd=cwd, capture_output=True, text=True,
                          timeout=timeout, preexec_fn=limits)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    results = {line["check"]: line for line in lines if "check" in line}
    return results, lines[-1] if lines else {}, done.returncode, done.stderr


def stub(tmp_path, lines, kind="stub_nvml", **more):
    (tmp_path / "gpus").write_text(lines)
    return {"LD_LIBRARY_PATH": str(BUILD / kind), "STUB_NVML": str(tmp_path / "gpus"), **more}


# Who was seen to warn or fail, and under which code: the last test of this file looks through it.
PROVOKED = set()


def codes_of(result):
    return [finding.get("code", "") for finding in result["findings"] if finding["verdict"] in ("warning", "failed")]


def expect(results, name, verdict, code):
    result = results[name]
    assert result["verdict"] == verdict and code in codes_of(result), result
    PROVOKED.add((name, code))
    for finding in result["findings"]:
        assert (finding["verdict"] in ("warning", "failed")) == ("fix" in finding), finding


# What the driver says, which check notices, how, and under which code.
DRIVERS = [
    ("driver and libraries differ", "init 18\n", {}, "driver", "failed", "LS-203"),
    ("not loaded", "init 9\n", {}, "driver", "failed", "LS-201"),
    ("does not answer", "init 999\n", {}, "driver", "failed", "LS-204"),
    ("too old for CUDA 13", TWO_GPUS.replace("cuda 13000", "cuda 12040"), {}, "driver", "failed", "LS-202"),
    ("hot", TWO_GPUS + "1.throttle 0x60\n1.temperature 92\n", {}, "gpus", "warning", "LS-207"),
    ("few lanes", TWO_GPUS + "1.width 4\n", {}, "gpus", "warning", "LS-208"),
    ("in use", TWO_GPUS + f"1.processes {os.getpid()}:5000000000\n", {}, "gpus", "warning", "LS-206"),
    ("in use by who cannot be seen", TWO_GPUS + "0.used 9000000000\n", {}, "gpus", "warning", "LS-206"),
    ("prohibited", TWO_GPUS + "0.compute_mode 2\n", {}, "gpus", "failed", "LS-206"),
    ("memory errors", TWO_GPUS + "0.ecc 2\n", {}, "gpus", "failed", "LS-211"),
    ("an old GPU", TWO_GPUS + "0.major 6\n0.minor 1\n", {}, "gpus", "failed", "LS-212"),
    ("one that no kernel was compiled for", TWO_GPUS + "0.major 7\n0.minor 5\n", {}, "gpus", "failed", "LS-212"),
    ("only one is visible", TWO_GPUS, {"CUDA_VISIBLE_DEVICES": "1"}, "gpus", "warning", "LS-205"),
    ("two kinds", TWO_GPUS + "1.name NVIDIA RTX A2000\n", {}, "kinds", "warning", "LS-209"),
    ("no peer access", TWO_GPUS + "*.peer 4\n", {}, "links", "warning", "LS-210"),
]


@pytest.mark.parametrize("lines,env,name,verdict,code", [case[1:] for case in DRIVERS], ids=[case[0] for case in DRIVERS])
def test_what_the_driver_says(tmp_path, lines, env, name, verdict, code):
    results, total, status, _ = run_check("--only", "driver,gpus,kinds,links", env=stub(tmp_path, lines, **env))
    expect(results, name, verdict, code)
    assert status == (3 if verdict == "failed" else 1) and total["all_is_well"] is False


def test_gpus_that_are_well(tmp_path):
    results, total, status, _ = run_check("--only", "driver,gpus,kinds,links", env=stub(tmp_path, TWO_GPUS))
    assert status == 0 and total["all_is_well"], results
    assert results["gpus"]["numbers"][1]["name"] == "NVIDIA H200" and results["links"]["numbers"]["matrix"][0] == ["-", "NV1"]
    # What a driver keeps of a large card for itself is nobody's use; and who asks for the CPU is not told of GPUs.
    results, _, status, _ = run_check("--only", "gpus", env=stub(tmp_path, TWO_GPUS + "*.used 2000000000\n"))
    assert status == 0, results
    results, _, status, _ = run_check("--only", "driver,gpus,kinds,links", "--device", "cpu", env=stub(tmp_path, TWO_GPUS))
    assert status == 0 and results["gpus"]["verdict"] == "not here", results
    results, _, status, _ = run_check("--only", "gpus", env=stub(tmp_path, TWO_GPUS, CUDA_VISIBLE_DEVICES="7"))
    assert status == 1 and codes_of(results["gpus"]) == ["LS-205"], results
    results, _, status, _ = run_check("--only", "driver,gpus,kinds,links", env=stub(tmp_path, TWO_GPUS, kind="old_nvml"))
    assert status == 0 and results["gpus"]["verdict"] == "ok", results


def test_gpus_that_cuda_does_not_see(tmp_path):
    """The driver's library shows two GPUs, and CUDA cannot start: what a worker says of it becomes the finding."""
    results, _, status, _ = run_check("--only", "libtorch,start,nccl,training", env=stub(tmp_path, TWO_GPUS))
    assert status == 3
    assert results["start"]["verdict"] == "failed" and codes_of(results["start"])[0] in ("LS-105", "LS-201", "LS-202", "LS-104"), results["start"]
    assert results["nccl"]["verdict"] == results["training"]["verdict"] == "not here", "what cannot start is not started"


def test_no_gpu_means_cpu_and_is_no_failure(tmp_path):
    results, _, status, _ = run_check("--only", "driver,gpus,kinds,links,nccl")
    if results["driver"]["verdict"] == "ok":
        pytest.skip("needs a machine without GPUs: this one has some")
    assert status == 0 and {result["verdict"] for result in results.values()} == {"not here"}
    assert "CPU" in results["driver"]["findings"][0]["words"]


def fake_torch(folder, version):
    (folder / "lib").mkdir(parents=True)
    (folder / "lib/libtorch_cpu.so").write_text("")
    (folder / "version.py").write_text(f"__version__ = '{version}'\n")
    return folder


def program(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def lfs_model(folder):
    folder.mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
              "intermediate_size": 128, "vocab_size": 64, "max_position_embeddings": 64, "rms_norm_eps": 1e-5}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
    return folder


def no_family(folder):
    lfs_model(folder)
    (folder / "config.json").write_text(json.dumps({"architectures": ["MambaForCausalLM"], "model_type": "mamba"}))
    return folder


# Arguments and environment made in a fresh folder; which check notices, how, and under which code.
MISTAKES = [
    ("LibTorch of another version", lambda t: ([], {"LOCKSTEP_LIBTORCH": str(fake_torch(t / "torch", "2.4.0"))}), "libtorch", "failed", "LS-103"),
    ("LibTorch without CUDA, and GPUs", lambda t: (["--device", "auto"], stub(t, TWO_GPUS, LOCKSTEP_LIBTORCH=str(fake_torch(t / "torch", "2.11.0+cpu")))), "libtorch",
     "failed", "LS-105"),
    ("no LibTorch", lambda t: ([], {"LOCKSTEP_LIBTORCH": str(t)}), "libtorch", "failed", "LS-102"),
    ("no worker", lambda t: ([], {"LOCKSTEP_WORKER": str(t / "worker")}), "worker", "failed", "LS-101"),
    ("a worker that does not load",
     lambda t: ([], {"LOCKSTEP_WORKER": str(program(t / "worker", "echo 'worker: error while loading shared libraries: libtorch_cpu.so' >&2; exit 127"))}),
     "start", "failed", "LS-104"),
    ("a setting that is none", lambda t: (["trainer.batch_sise=3"], {}), "settings", "failed", ""),
    ("a GPU that is not there", lambda t: (["--gpus", "5", "--device", "cuda"], stub(t, TWO_GPUS)), "settings", "failed", "LS-205"),
    ("GPUs that are too small", lambda t: (["--device", "cuda"], stub(t, TWO_GPUS + "*.memory 100000000\n")), "settings", "warning", "LS-401"),
    ("weights that are pointers of Git LFS", lambda t: (["--model", str(lfs_model(t / "m"))], {}), "model", "failed", "LS-501"),
    ("an architecture nobody knows", lambda t: (["--model", str(no_family(t / "m"))], {}), "settings", "failed", "LS-502"),
    ("data that is not there", lambda t: (["--data", str(t / "none.jsonl")], {}), "data", "failed", "LS-503"),
    ("half of a launcher's variables", lambda t: ([], {"RANK": "0", "WORLD_SIZE": "2"}), "launcher", "failed", "LS-311"),
    ("an interface for NCCL that is not there", lambda t: ([], {"NCCL_SOCKET_IFNAME": "nope0"}), "variables", "failed", "LS-302"),
    ("an interface for Gloo that is not there", lambda t: ([], {"GLOO_SOCKET_IFNAME": "nope0"}), "variables", "failed", "LS-307"),
    ("NCCL is kept from peers", lambda t: ([], {"NCCL_P2P_DISABLE": "1"}), "variables", "warning", "LS-315"),
    ("threads that are no number", lambda t: ([], {"OMP_NUM_THREADS": "many"}), "variables", "warning", "LS-411"),
    ("a folder that cannot be", lambda t: (["--output", "/proc/runs"], {}), "disks", "failed", "LS-407"),
    ("machine 0 has no such name", lambda t: (["--nodes", "2", "--node-rank", "1", "--master-addr", "no.such.host.invalid"], {}), "names", "failed", "LS-306"),
]


@pytest.mark.parametrize("make,name,verdict,code", [case[1:] for case in MISTAKES], ids=[case[0] for case in MISTAKES])
def test_mistakes(tmp_path, make, name, verdict, code):
    args, env = make(tmp_path)
    device = [] if "--device" in args else ["--device", "cpu"]
    needs = {"start": "worker,start", "model": "worker,libtorch,model"}.get(name, name)
    results, _, status, _ = run_check(*device, "--only", needs, *args, env=env, cwd=tmp_path)
    expect(results, name, verdict, code)
    assert status == (3 if verdict == "failed" else 1)


def test_a_port_that_is_taken(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        results, _, status, _ = run_check("--device", "cpu", "--only", "port", "--port", str(port))
    expect(results, "port", "failed", "LS-305")
    assert f"pid {os.getpid()}" in results["port"]["findings"][0]["words"] and status == 3


def test_limits_of_the_shell():
    few_files = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))
    results, _, status, _ = run_check("--device", "cpu", "--only", "limits", limits=few_files)
    expect(results, "limits", "failed", "LS-406")
    few_processes = lambda: resource.setrlimit(resource.RLIMIT_NPROC, (90, 90))
    if os.geteuid() == 0:  # whose processes are not counted
        results, _, status, _ = run_check("--device", "cpu", "--only", "limits", limits=few_processes)
        expect(results, "limits", "warning", "LS-411")


def other_machine(tmp_path, *mounts):
    """The beginning of a command that sees other files in these places: tmpfs of a size, or what lies in tmp_path."""
    prefix = ["unshare", "--mount", "--uts", "sh", "-ec", f"cd {tmp_path}; hostname box; " + "; ".join(mounts) + '; exec "$@"', "sh"]
    done = subprocess.run([*prefix, "true"], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"needs root: {done.stderr.strip()}" if os.geteuid() else f"mounts are not allowed here: {done.stderr.strip()}")
    return prefix


def test_small_disks_and_shared_memory(tmp_path):
    prefix = other_machine(tmp_path, "mkdir -p out", "mount -t tmpfs -o size=512k none /dev/shm", "mount -t tmpfs -o size=8m none out")
    results, _, status, _ = run_check("--device", "cpu", "--only", "shared_memory,disks", "--output", "out", prefix=prefix, cwd=tmp_path)
    expect(results, "shared_memory", "failed", "LS-404")
    expect(results, "disks", "failed", "LS-405")
    assert status == 3


def card(folder, vendor):
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "class").write_text("0x030200\n")


def test_machines_that_are_not_to_be_had(tmp_path):
    """Another kernel's files in place of this one's: little memory, a container's limit, InfiniBand, cards without a driver."""
    (tmp_path / "meminfo").write_text("MemTotal: 16000000 kB\nMemAvailable: 100000 kB\n")
    prefix = other_machine(tmp_path, "mount --bind meminfo /proc/meminfo")
    results, *_ = run_check("--device", "cpu", "--ranks", "2", "--only", "memory", prefix=prefix)
    expect(results, "memory", "failed", "LS-402")

    (tmp_path / "cgroup").mkdir()
    for name, bytes in {"memory.max": 800 << 20, "memory.current": 700 << 20}.items():
        (tmp_path / "cgroup" / name).write_text(f"{bytes}\n")
    (tmp_path / "meminfo").write_text("MemTotal: 16000000 kB\nMemAvailable: 15000000 kB\n")
    prefix = other_machine(tmp_path, "mount --bind meminfo /proc/meminfo", "mount --bind cgroup /sys/fs/cgroup")
    results, *_ = run_check("--device", "cpu", "--only", "memory", prefix=prefix)
    expect(results, "memory", "failed", "LS-408")

    (tmp_path / "class/infiniband").mkdir(parents=True)
    prefix = other_machine(tmp_path, "mount --bind class /sys/class", "echo 127.0.1.1 box >hosts", "mount --bind hosts /etc/hosts")
    little_locked = lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
    results, *_ = run_check("--device", "cpu", "--nodes", "2", "--master-addr", "10.0.0.1", "--only", "limits,names", prefix=prefix, limits=little_locked)
    expect(results, "limits", "warning", "LS-409")
    expect(results, "names", "warning", "LS-307")

    for vendor, verdict, code in (("0x1002", "warning", "LS-214"), ("0x10de", "failed", "LS-201")):
        card(tmp_path / vendor / "0000:01:00.0", vendor)
        prefix = other_machine(tmp_path, f"mount --bind {vendor} /sys/bus/pci/devices")
        results, *_ = run_check("--only", "driver", prefix=prefix)
        if "NVIDIA driver" in results["driver"]["findings"][0]["words"]:
            pytest.skip("needs a machine without GPUs: this one has some")
        expect(results, "driver", verdict, code)


def test_a_clock_that_is_wrong(tmp_path):
    """The C library's clock, replaced."""
    (tmp_path / "clock.c").write_text("#include <sys/timex.h>\n#include <time.h>\ntime_t time(time_t* t) { if (t) *t = NOW; return NOW; }\n"
                                      "int adjtimex(struct timex* t) { t->status = STA_UNSYNC; return TIME_ERROR; }\n")
    for now, nodes, verdict in ((3600, "1", "failed"), (1_800_000_000, "2", "warning")):
        library = tmp_path / f"clock-{now}.so"
        subprocess.run(["cc", "-shared", "-fPIC", f"-DNOW={now}", "-o", library, tmp_path / "clock.c"], check=True)
        results, *_ = run_check("--device", "cpu", "--nodes", nodes, "--master-addr", "10.0.0.1", "--only", "clock", env={"LD_PRELOAD": str(library)})
        expect(results, "clock", verdict, "LS-410")


# A rank that is broken on purpose.
FAULTS = [
    ("sums come out wrong", "rank=1 action=nan", "gloo", "LS-314"),
    ("weights drift apart", "rank=1 step=2 action=drift", "training", "LS-602"),
    ("a rank is killed", "rank=1 step=3 phase=backward action=kill", "training", "LS-605"),
]


@pytest.mark.parametrize("fault,name,code", [case[1:] for case in FAULTS], ids=[case[0] for case in FAULTS])
def test_broken_ranks(fault, name, code):
    results, _, status, _ = run_check("--device", "cpu", "--ranks", "2", "--only", name, env={"LOCKSTEP_TEST_FAULT": fault})
    expect(results, name, "failed", code)
    assert status == 3 and "rank 1" in results[name]["findings"][0]["words"]


def test_a_machine_that_is_well_and_what_people_see(tmp_path):
    (tmp_path / "temporary").mkdir()  # a place of its own: other checks may run beside this one
    done = subprocess.run([LOCKSTEP, "check", "--device", "cpu", "--ranks", "2", "--output", tmp_path / "runs"], capture_output=True, text=True, timeout=180,
                          cwd=tmp_path, env={**os.environ, "TMPDIR": str(tmp_path / "temporary")})
    lines = {match[2]: match[1] for line in done.stdout.splitlines() if (match := re.match(r"  (ok|not here|warning|failed)\s+(\w+)  ", line))}
    assert lines["gloo"] == lines["training"] == lines["libtorch"] == lines["start"] == "ok", done.stdout
    assert lines["nccl"] == "not here"
    assert "12 collectives right" in done.stdout and "weights equal on all of them" in done.stdout
    counted = "failed" if "failed" in lines.values() else "warning" if "warning" in lines.values() else "ok"
    assert done.returncode == {"ok": 0, "warning": 1, "failed": 3}[counted], done.stdout
    assert ("all is well" in done.stdout) == (done.returncode == 0)
    assert not (tmp_path / "runs").exists(), "a check leaves nothing behind"
    assert not list((tmp_path / "temporary").iterdir())


def test_two_machines_meet_and_machine_0_shows_both(tmp_path):
    common = ["--device", "cpu", "--ranks", "1", "--nodes", "2", "--master-addr", own_address(), "--port", str(free_port()), "--output", str(tmp_path / "shared"),
              "--only", "memory,launcher,gloo,training"]
    env = {**os.environ, "LOCKSTEP_SECRET": "0123456789abcdef"}
    other = subprocess.Popen([LOCKSTEP, "check", *common, "--node-rank", "1"], env={**env, "NCCL_P2P_DISABLE": "1"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True)
    try:
        first = subprocess.run([LOCKSTEP, "check", "--json", *common], env=env, capture_output=True, text=True, timeout=120)
        out, err = other.communicate(timeout=60)
    finally:
        other.kill()
    lines = [json.loads(line) for line in first.stdout.splitlines()]
    results = {line["check"]: line for line in lines if "check" in line}
    assert results["gloo"]["verdict"] == results["training"]["verdict"] == "ok", first.stdout + first.stderr + out + err
    assert results["training"]["numbers"]["ranks"] == 2
    machine = next(line for line in lines if "machine" in line)
    assert machine["machine"] == 1 and [result["check"] for result in machine["results"]] == ["launcher", "memory"]
    assert "training" in out and other.returncode in (0, 1), out + err


def test_nobody_at_machine_0(tmp_path):
    results, _, status, _ = run_check("--device", "cpu", "--ranks", "1", "--nodes", "2", "--node-rank", "1", "--master-addr", own_address(), "--port", str(free_port()),
                                      "parallel.timeout_s=2", "--only", "gloo", env={"LOCKSTEP_SECRET": "0123456789abcdef"}, cwd=tmp_path)
    expect(results, "gloo", "failed", "LS-304")
    assert status == 3


def test_names_of_checks():
    done = subprocess.run([LOCKSTEP, "check", "--only", "gpu"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2 and "Did you mean gpus?" in done.stderr
    done = subprocess.run([LOCKSTEP, "check", "--only", "list"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0 and "training" in done.stdout


def test_every_check_and_every_code_was_provoked(request, tmp_path):
    """Above, by the program itself: a check without a case, or a code in the room's sources that none gives, is not finished."""
    ran = {item.name.split("[")[0] for item in request.session.items if item.path == request.path}
    if not {name for name in globals() if name.startswith("test_")} <= ran:
        return  # only some of this file's tests were asked for
    other_machine(tmp_path, "true")
    if pathlib.Path("/proc/driver/nvidia/version").exists():
        pytest.skip("needs a machine without GPUs: this one has some")
    sources = "".join(path.read_text() for path in (ROOT / "src/front/check").glob("*.cpp"))
    checks = {line.split()[0] for line in subprocess.run([LOCKSTEP, "check", "--only", "list"], capture_output=True, text=True, timeout=30).stdout.splitlines()}
    needs_gpus = {"nccl"}  # tests/gpu/checks.py; how its speed is judged is in tests/unit/front/check_test.cpp
    assert checks - {name for name, _ in PROVOKED} == needs_gpus
    assert set(re.findall(r"LS-\d{3}", sources)) <= {code for _, code in PROVOKED}
