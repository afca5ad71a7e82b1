"""Machines as network namespaces: each has a host name, an address, Debian's `127.0.1.1 name` line, and a cable to one switch."""
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", ROOT / "build")) / "bin"
SECRET = "a secret of the tests, long enough"
# `ip netns exec` and what follows replace each other, so the process that is started is the one that is signaled.
ENTER = 'hostname "$1"; [ -z "$2" ] || mount -t tmpfs none "$2"; shift 2; exec "$@"'


def why_not() -> str | None:
    """Why no machines can be made here; nothing where they can."""
    if os.geteuid() != 0:
        return "not root: network namespaces cannot be made"
    if not shutil.which("ip") or not shutil.which("tc"):
        return "ip and tc are missing (Debian: iproute2)"
    probe = f"lockstep-{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", probe], capture_output=True)
    return f"network namespaces cannot be made: {made.stderr.strip()}" if made.returncode else None


def sh(*command) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr}"


class Run:
    """One started `lockstep train` on one machine."""

    def __init__(self, process, out, err, machine):
        self.process, self.machine = process, machine
        self._out, self._err = out, err

    @property
    def out(self) -> str:
        return self._out.read_text(errors="replace")

    @property
    def err(self) -> str:
        return self._err.read_text(errors="replace")

    @property
    def text(self) -> str:
        return f"--- {self.machine.name} (exit {self.process.poll()}) ---\n{self.out}{self.err}"

    @property
    def code(self):
        return self.process.returncode

    def wait(self, seconds=40):
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end within {seconds} s\n{self.text}") from None
        return self

    def wait_for(self, words, seconds=20):
        deadline = time.monotonic() + seconds
        while words not in self.out + self.err:
            assert self.process.poll() is None, f"it ended before it said {words!r}\n{self.text}"
            assert time.monotonic() < deadline, f"it never said {words!r}\n{self.text}"
            time.sleep(0.02)
        return self

    def send(self, number):
        self.process.send_signal(number)


class Machine:
    def __init__(self, network, number):
        self.network, self.number = network, number
        self.name = f"box{number}"
        self.namespace = f"lockstep-{os.getpid()}-{number}"
        self.address = f"10.77.0.{number + 1}"
        self.runs = []

    def make(self):
        hosts = pathlib.Path("/etc/netns") / self.namespace / "hosts"
        hosts.parent.mkdir(parents=True, exist_ok=True)
        others = "".join(f"10.77.0.{n + 1} box{n}\n" for n in range(self.network.count) if n != self.number)
        hosts.write_text(f"127.0.0.1 localhost\n127.0.1.1 {self.name}\n{others}")
        sh("ip", "netns", "add", self.namespace)
        sh("ip", "link", "add", "net0", "netns", self.namespace, "type", "veth", "peer", "name", f"port{self.number}", "netns", self.network.switch)
        sh("ip", "-n", self.network.switch, "link", "set", f"port{self.number}", "master", "switch0", "up")
        for words in (["addr", "add", f"{self.address}/24", "dev", "net0"], ["link", "set", "net0", "up"], ["link", "set", "lo", "up"]):
            sh("ip", "-n", self.namespace, *words)

    def remove(self):
        subprocess.run(["ip", "netns", "del", self.namespace], capture_output=True)
        shutil.rmtree(pathlib.Path("/etc/netns") / self.namespace, ignore_errors=True)

    def command(self, *words, own_folder=""):
        return ["ip", "netns", "exec", self.namespace, "unshare", "--uts", "--mount", "sh", "-c", ENTER, "sh", self.name, str(own_folder), *map(str, words)]

    def start(self, *words, own_folder="", **variables) -> Run:
        """Starts a command on this machine. own_folder: a path that shows a disk of this machine alone."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "FAKE_", "SLURM_", "OMPI_", "MASTER_")) and k not in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}
        environment.update({k: str(v) for k, v in variables.items() if v is not None})
        logs = self.network.folder / f"{self.name}-{len(self.runs)}"
        out, err = logs.with_suffix(".out"), logs.with_suffix(".err")
        with out.open("w") as o, err.open("w") as e:
            process = subprocess.Popen(self.command(*words, own_folder=own_folder), stdout=o, stderr=e, env=environment, cwd=ROOT)
        self.runs.append(Run(process, out, err, self))
        return self.runs[-1]

    def train(self, *args, node=None, nodes=2, output, secret=SECRET, fake=True, config=ROOT / "models/nano.yaml", own_folder="", **variables) -> Run:
        """`lockstep train` as one of the machines of a run that meets at box0."""
        node = self.number if node is None else node
        words = [BIN / "lockstep", "train", "-f", config, "--device", "cpu", "--output", output, "--name", "run", "--nnodes", nodes,
                 "--node-rank", node, "--master-addr", "box0", "--port", 29500, "parallel.timeout_s=20", *args]
        if fake:
            variables["LOCKSTEP_WORKER"] = BIN / "fake_worker"
        return self.start(*words, own_folder=own_folder, LOCKSTEP_SECRET=secret, **variables)

    def listeners(self) -> set[str]:
        """Addresses that something on this machine listens at, as address:port."""
        found = set()
        for table in ("tcp", "tcp6"):
            text = subprocess.run(["ip", "netns", "exec", self.namespace, "cat", f"/proc/net/{table}"], capture_output=True, text=True).stdout
            for line in text.splitlines()[1:]:
                words = line.split()
                if words[3] != "0A":
                    continue
                host, port = words[1].split(":")
                loopback = host in ("0100007F", "00000000000000000000000001000000")
                found.add(f"{'loopback' if loopback else 'outside'}:{int(port, 16)}")
        return found

    def slow(self):
        """A slow cable that loses what comes too fast: 40 ms and 3 % where the kernel can, else a narrow one with a short queue."""
        netem = ["tc", "-n", self.namespace, "qdisc", "add", "dev", "net0", "root", "netem", "delay", "40ms", "loss", "3%"]
        if subprocess.run(netem, capture_output=True).returncode != 0:
            sh("tc", "-n", self.namespace, "qdisc", "add", "dev", "net0", "root", "tbf", "rate", "3mbit", "burst", "6k", "limit", "12k")

    def pull_the_plug(self):
        sh("ip", "-n", self.network.switch, "link", "set", f"port{self.number}", "down")


class Network:
    def __init__(self, count, folder):
        self.count, self.folder = count, pathlib.Path(folder)
        self.switch = f"lockstep-{os.getpid()}-switch"
        self.machines = [Machine(self, number) for number in range(count)]

    def __enter__(self):
        sh("ip", "netns", "add", self.switch)
        sh("ip", "-n", self.switch, "link", "add", "switch0", "type", "bridge")
        sh("ip", "-n", self.switch, "link", "set", "switch0", "up")
        for machine in self.machines:
            machine.make()
        return self.machines

    def __exit__(self, *_):
        for machine in self.machines:
            for run in machine.runs:
                if run.process.poll() is None:
                    run.process.send_signal(signal.SIGKILL)
                    run.process.wait()
            machine.remove()
        subprocess.run(["ip", "netns", "del", self.switch], capture_output=True)
