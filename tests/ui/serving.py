"""A real `lockstep ui` on a free port, and small ways to talk to it."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time

from support.lockstep import LOCKSTEP, ROOT
from support.network import free_port

# What a tiny run is made of; 2 CPU ranks, a step takes some milliseconds.
TINY = {
    "model.name": "tiny", "model.hidden_size": "32", "model.num_layers": "2", "model.num_heads": "4", "model.kv_heads": "2",
    "model.intermediate_size": "64", "model.vocab_size": "67", "model.max_seq_len": "16", "model.tie_embeddings": "false", "data.kind": "random",
    "data.random_tokens": "3200", "data.validation_fraction": "0.1", "trainer.global_batch_size": "12", "trainer.log_interval": "1",
    "trainer.save_interval": "0", "trainer.target_device": "cpu", "parallel.ranks": "2", "parallel.threads": "1", "monitor.sample_tokens": "4",
    "trainer.learning_rate": "0.003",
}


class Served:
    def __init__(self, folder: pathlib.Path, *flags: str, env: dict | None = None, prefix: tuple[str, ...] = ()):
        """prefix: words before the command."""
        self.folder, self.flags, self.env, self.prefix = folder, flags, env or {}, prefix
        self.output = folder / "runs"
        self.port = free_port()
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [*self.prefix, LOCKSTEP, "ui", "--port", str(self.port), "--output", str(self.output), "--folder", str(self.folder), *self.flags],
            cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1", **self.env})
        line = self.process.stdout.readline()
        assert ":" in line, f"the page did not start: {self.process.stderr.read()}"
        self.port = int(re.search(r":(\d+)/", line)[1])
        self.process.stdout.readline()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(20)
        self.process.stdout.close()

    def close(self) -> None:
        """Ends the page and every run that was started from it."""
        for start in (self.output / ".ui").glob("*.start"):
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(json.loads(start.read_text())["pid"], signal.SIGKILL)
        if self.process.poll() is None:
            self.stop()

    def request(self, method: str, path: str, body=None, headers: dict | None = None, timeout: float = 20):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        sent = {"Content-Type": "application/json", **(headers or {})} if method != "GET" else headers or {}
        connection.request(method, path, json.dumps(body) if isinstance(body, (dict, list)) else body, sent)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, text, answer.headers

    def json(self, method: str, path: str, body=None, status: int = 200):
        code, text, _ = self.request(method, path, body)
        assert code == status, (code, text[:2000])
        return json.loads(text)

    def raw(self, sent: bytes, timeout: float = 5) -> bytes:
        """What comes back for these bytes, until the server closes or is silent."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as client:
            answer = b""
            with contextlib.suppress(ConnectionError, socket.timeout):
                client.sendall(sent)
                client.shutdown(socket.SHUT_WR)
                while piece := client.recv(65536):
                    answer += piece
            return answer

    def begin(self, name: str, **settings: str) -> str:
        values = {**TINY, "name": name, **{key.replace("__", "."): value for key, value in settings.items()}}
        return self.json("POST", "/api/runs", {"settings": values}, 202)["name"]

    def wait_for_run(self, name: str, seconds: float = 60) -> None:
        """Until a run that was started elsewhere has a folder here."""
        deadline = time.monotonic() + seconds
        while not (self.output / name / "metrics.jsonl").exists():
            assert time.monotonic() < deadline, f"{name} did not begin"
            time.sleep(0.1)

    def wait_for(self, name: str, holds, seconds: float = 60) -> dict:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            details = self.json("GET", f"/api/runs/{name}")
            if holds(details):
                return details
            time.sleep(0.1)
        raise AssertionError(f"{name} did not come to it within {seconds} s: {json.dumps(details)[:3000]}")
