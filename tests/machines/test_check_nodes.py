"""`lockstep check --nodes`: machines that are well, one with something wrong, one that never comes, one that does not know the secret."""
import json
import re
import shlex

import pytest
from network import BIN, SECRET


def start(machine, output, *args, secret=SECRET, only="variables,names,gloo,training", **more):
    return machine.start(BIN / "lockstep", "check", "--json", "--device", "cpu", "--ranks", 1, "--threads", 1, "--nodes", 2, "--node-rank", machine.number,
                         "--master-addr", "box0", "--port", 29500, "--output", output, "parallel.timeout_s=20", "--only", only, *args, LOCKSTEP_SECRET=secret, **more)


def told(run):
    """By check, what this machine found; what others found; the sum."""
    lines = [json.loads(line) for line in run.out.splitlines()]
    others = {line["machine"]: {result["check"]: result for result in line["results"]} for line in lines if "machine" in line}
    return {line["check"]: line for line in lines if "check" in line}, others, lines[-1]


def codes(result):
    return [finding["code"] for finding in result["findings"] if "code" in finding]


@pytest.mark.parametrize("wrong", [False, True], ids=["both are well", "one names an interface that it does not have"])
def test_machine_0_shows_what_both_have_found(boxes, tmp_path, wrong):
    a, b = boxes(2)
    runs = [start(a, tmp_path), start(b, tmp_path, GLOO_SOCKET_IFNAME="eth7" if wrong else None)]
    for run in runs:
        run.wait(60)
    found, others, total = told(runs[0])
    assert others[1]["variables"]["verdict"] == ("failed" if wrong else "ok"), runs[0].text
    if wrong:
        assert codes(others[1]["variables"]) == ["LS-307"] and "eth7" in others[1]["variables"]["findings"][0]["words"]
        assert runs[0].code == runs[1].code == 3 and found["gloo"]["verdict"] == "failed" and total["sum"]["failed"] > 1
        return
    assert found["gloo"]["verdict"] == found["training"]["verdict"] == "ok" and found["training"]["numbers"]["ranks"] == 2, runs[0].text
    # Debian's line in /etc/hosts, on both: told, and harmless where machine 0 goes by a name that the others know.
    assert codes(found["names"]) == ["LS-307"] and [run.code for run in runs] == [1, 1], runs[1].text
    assert not list((tmp_path / "lockstep-check").glob("*")), "a check leaves nothing behind"


def test_a_machine_that_never_comes(boxes, tmp_path):
    a, b = boxes(2)
    run = start(a, tmp_path, "parallel.timeout_s=2", only="gloo").wait(60)
    finding = told(run)[0]["gloo"]["findings"][0]
    assert run.code == 3 and finding["code"] == "LS-318" and "missing node rank 1" in finding["words"], run.text
    run = start(b, tmp_path, "parallel.timeout_s=2", only="gloo").wait(60)
    assert run.code == 3 and codes(told(run)[0]["gloo"]) == ["LS-304"], run.text


def test_a_machine_with_another_secret(boxes, tmp_path):
    a, b = boxes(2)
    first = start(a, tmp_path, "parallel.timeout_s=4", only="gloo")
    second = start(b, tmp_path, "parallel.timeout_s=4", only="gloo", secret="quite another secret").wait(60)
    assert second.code == 3 and codes(told(second)[0]["gloo"]) == ["LS-312"], second.text
    assert first.wait(60).code == 3 and codes(told(first)[0]["gloo"])[0] in ("LS-312", "LS-318"), first.text


def test_the_line_that_machine_0_prints_is_enough(boxes, tmp_path):
    a, b = boxes(2)
    first = start(a, tmp_path, secret=None, only="gloo")
    first.wait_for("start it on the other machine with")
    secret, line = re.search(r"LOCKSTEP_SECRET=(\S+) lockstep (check .*)", first.err).groups()
    second = b.start(BIN / "lockstep", *shlex.split(line), LOCKSTEP_SECRET=secret)
    assert first.wait(60).code == second.wait(60).code == 0, first.text + second.text
