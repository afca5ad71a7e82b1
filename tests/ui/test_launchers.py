"""Who starts the ranks: the Launcher of the form, the commands that it shows, and what this page starts itself."""
import os
import re
import shlex
import socket
import subprocess
import sys

import pytest

import browser
from serving import TINY
from support.lockstep import BUILD
from support.network import free_port

IN_A_SHELL = {**os.environ, "PATH": f"{BUILD / 'bin'}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
TRAINS = r"lockstep train --output \S+ --name \S+ "


def own_address() -> str:
    """Of this machine and no loopback, so that it is one that other machines could be told."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("10.255.255.255", 1))  # sends nothing
            return probe.getsockname()[0]
        except OSError:
            pytest.skip("this machine has no address but its loopback")


@pytest.mark.parametrize("launcher, settings, line", [
    ("lockstep", {}, TRAINS),
    ("torchrun", {}, r"torchrun --standalone --nproc-per-node=2 --no-python " + TRAINS),
    ("torchrun", {"parallel.nnodes": "3", "parallel.master_addr": "node0", "parallel.master_port": "29507"},
     r"torchrun --nnodes=3 --node-rank=0 --master-addr=node0 --master-port=29507 --nproc-per-node=2 --no-python " + TRAINS),
    ("srun", {}, r"srun --ntasks=2 --kill-on-bad-exit=1 " + TRAINS),
    ("srun", {"parallel.nnodes": "3"}, r"srun --nodes=3 --ntasks-per-node=2 --kill-on-bad-exit=1 " + TRAINS),
    ("mpirun", {}, r"mpirun -n 2 " + TRAINS),
    ("mpirun", {"parallel.nnodes": "3", "parallel.master_addr": "node0"}, r"mpirun -n 6 --map-by ppr:2:node -x MASTER_ADDR=node0 " + TRAINS),
])
def test_the_command_follows_the_launcher(served, launcher, settings, line):
    asked = {"settings": {**TINY, "name": "spread", **settings}, "launcher": launcher}
    judged = served.json("POST", "/api/plan", asked)
    assert judged["errors"] == []
    (command,) = [one["command"] for one in judged["commands"]]
    assert re.match(line, command), command
    assert judged["plan"]["ranks"] == 2 * int(settings.get("parallel.nnodes", 1))
    assert ("parallel.ranks=2" in command) == (launcher == "lockstep") and "parallel.nnodes" not in command and "trainer.learning_rate=0.003" in command
    assert judged["starts_here"] == (launcher == "lockstep")
    if launcher != "lockstep":
        assert launcher in judged["start_note"]
        assert served.json("POST", "/api/runs", asked, 409)["error"] == judged["start_note"]
        assert "spread" not in [run["name"] for run in served.json("GET", "/api/runs")], "and nothing is started"


def test_a_launcher_that_is_none(served):
    judged = served.json("POST", "/api/plan", {"settings": TINY, "launcher": "rm -rf"})
    assert "rm -rf is no launcher: lockstep, torchrun, srun, mpirun are." in judged["errors"][0]["text"] and "plan" not in judged
    assert served.request("POST", "/api/plan", {"settings": TINY, "launcher": ["torchrun"]})[0] == 400


def test_the_line_of_torchrun_makes_a_run_that_shows_up(served):
    judged = served.json("POST", "/api/plan", {"settings": {**TINY, "name": "elastic", "trainer.max_steps": "4"}, "launcher": "torchrun"})
    words = shlex.split(judged["commands"][0]["command"])
    assert words[0] == "torchrun"
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", *words[1:]], capture_output=True, text=True, timeout=120,
                          env=IN_A_SHELL, cwd=served.folder)
    assert done.returncode == 0, done.stdout + done.stderr
    run = served.wait_for("elastic", lambda run: run["state"] == "complete")
    assert run["step"] == 4 and run["ranks"] == [0, 1]


def test_a_run_of_two_machines_begins_here_and_its_page_tells_the_other_line(page, served):
    values = {**TINY, "name": "two", "trainer.max_steps": "4", "parallel.ranks": "1", "parallel.nnodes": "2", "parallel.master_addr": own_address(), "parallel.master_port": str(free_port())}
    judged = served.json("POST", "/api/plan", {"settings": values})
    assert judged["starts_here"] and [one["where"] for one in judged["commands"]] == ["on machine 0", "on the others, with their number; machine 0 tells the secret"]
    assert judged["plan"]["ranks"] == 2 and any("2 machines with 1 rank each are counted" in note for note in judged["plan"]["notes"])
    page.goto(served.url + "/")
    page.evaluate("values => sessionStorage.setItem('new-run', JSON.stringify(values))", values)
    page.goto(served.url + "/new")
    assert page.get_by_label("Launcher").input_value() == "machines"
    page.get_by_text("Start begins machine 0 here.").first.wait_for()
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_role("heading", name="two").wait_for()
    waits = page.get_by_label("Starting", exact=True)
    line = waits.get_by_label("Start the other machine with")
    line.wait_for(timeout=60_000)
    browser.picture(page, "waits-for-machines")
    assert browser.violations(page) == []
    command = line.inner_text()
    assert command.startswith("LOCKSTEP_SECRET=") and command.endswith("--node-rank 1")
    other = subprocess.run(["sh", "-c", command], cwd=served.folder, capture_output=True, text=True, timeout=120, env=IN_A_SHELL)
    assert other.returncode == 0, other.stdout + other.stderr
    run = served.wait_for("two", lambda run: run["state"] == "complete")
    assert run["step"] == 4 and run["ranks"] == [0, 1]


def test_the_form_says_what_it_cannot_start(page, served):
    page.goto(served.url + "/")
    page.evaluate("values => sessionStorage.setItem('new-run', JSON.stringify(values))", {**TINY, "name": "chosen", "trainer.max_steps": "5"})
    page.goto(served.url + "/new")
    plan, start = page.get_by_label("Plan", exact=True), page.get_by_role("button", name="Start", exact=True)
    plan.get_by_text("lockstep train").first.wait_for()
    page.get_by_label("Launcher").select_option("srun")
    plan.get_by_text("srun --ntasks=2").wait_for()
    assert start.is_disabled() and page.get_by_role("status").filter(has_text="srun starts the ranks itself").is_visible()
    page.get_by_label("Machines").fill("3")
    plan.get_by_text("srun --nodes=3 --ntasks-per-node=2").wait_for()
    browser.picture(page, "launcher")
    assert browser.violations(page) == []
    page.reload()  # the tab keeps it
    plan.get_by_text("srun --nodes=3").wait_for()
    page.get_by_label("Launcher").select_option("machines")
    mistake = page.get_by_role("alert").filter(has_text="Set --master-addr to the address of machine 0")
    mistake.wait_for()
    page.get_by_label("Address of machine 0").fill("node0")
    plan.get_by_label("The same as a command, on machine 0").wait_for()
    assert start.is_enabled() and plan.get_by_text("LOCKSTEP_SECRET=...").is_visible()
    page.get_by_label("Launcher").select_option("lockstep")
    plan.get_by_label("The same as a command", exact=True).wait_for()
    assert "nnodes" not in plan.inner_text() and start.is_enabled() and not page.get_by_label("Machines").count()
    page.get_by_label("Launcher").select_option("mpirun")
    plan.get_by_text("mpirun -n 2").wait_for()
    page.get_by_label("Enable Multi-GPU").uncheck()
    plan.get_by_text("trainer.distributed.enabled=false").wait_for()
    assert page.get_by_label("Launcher").is_disabled() and "mpirun" not in plan.inner_text(), "one rank needs no launcher"
