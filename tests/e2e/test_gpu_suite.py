"""The GPU suite without a GPU: what it counts, what it keeps between calls, and that its cases are commands that work."""
import json
import subprocess
import sys

import pytest

from support.lockstep import BUILD, ROOT

RUN = ROOT / "tests" / "gpu" / "run.py"


@pytest.fixture
def suite_modules(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "gpu"))
    import run
    import suite
    return run, suite


def call(*args):
    return subprocess.run([sys.executable, RUN, *map(str, args)], capture_output=True, text=True, cwd=ROOT, timeout=300)


def test_a_name_that_matches_nothing_is_a_failure():
    done = call("--only", "no-such-case")
    assert done.returncode == 2 and "no case is called no-such-case" in done.stderr


def test_cases_are_counted_kept_and_gone_on_with(suite_modules, tmp_path, capsys):
    run, suite = suite_modules
    tried = []

    def case(name, outcome=None, seconds=1):
        def work(_):
            tried.append(name)
            if outcome:
                raise outcome
        return suite.Case(name, seconds, work)

    cases = [case("good"), case("bad", suite.Problem("the losses differ")), case("elsewhere", suite.Skip("needs a GPU")), case("broken", KeyError("x")), case("late")]
    machine = suite.Suite(BUILD, tmp_path / "work", "cpu", tmp_path / "suite.log")
    about = {"programs": "a", "device": "cpu", "version": "v"}
    results = run.Results(tmp_path / "results.json", about)
    assert [run.run_case(machine, one, results) for one in cases[:4]] == ["passed", "failed", "skipped", "failed"]
    assert run.conclude(results, cases) == 1
    out = capsys.readouterr().out
    assert "1 passed, 2 failed, 1 skipped and 0 tests within, 1 left; failed: bad, broken" in out and "skipped: elsewhere: needs a GPU" in out and "not run yet: late" in out
    assert "the losses differ" in (tmp_path / "suite.log").read_text()

    again = run.Results(tmp_path / "results.json", about)
    assert [again.done(one.name) for one in cases] == [True, False, True, False, False]  # what failed is tried again
    assert run.conclude(again, [cases[0], cases[2], cases[4]]) == 3 and run.conclude(again, [cases[0]]) == 0
    assert not run.Results(tmp_path / "results.json", {**about, "programs": "b"}).done("good")


def test_golden_numbers_that_changed_are_named(suite_modules, tmp_path, monkeypatch):
    run, suite = suite_modules
    import unchanged
    golden = {"loss": [(4.25).hex(), (4.0).hex()], "grad_norm": [(1.0).hex()] * 2, "tensors": {"model/a": "00", "model/b": "11"}}
    later = {**golden, "loss": [(4.25).hex(), (4.0000001).hex()]}
    assert unchanged.first_difference(golden, golden) == ""
    assert unchanged.first_difference(golden, later) == "loss of step 2: 4.0 became 4.0000001"
    assert unchanged.first_difference(golden, {**golden, "tensors": {"model/a": "00", "model/b": "12"}}) == "1 tensors, first model/b"

    machine = suite.Suite(BUILD, tmp_path / "work", "cpu", tmp_path / "suite.log")
    machine.golden = tmp_path
    with pytest.raises(suite.Skip, match="no golden numbers of a cpu"):
        unchanged.not_a_bit_has_changed(machine)
    monkeypatch.setattr(unchanged, "everything", lambda _: {"untied": golden})
    unchanged.make(machine, tmp_path)
    assert unchanged.not_a_bit_has_changed(machine) == "1 cases, bit for bit"
    monkeypatch.setattr(unchanged, "everything", lambda _: {"untied": later})
    with pytest.raises(suite.Problem, match="1 of 1 cases changed:\nuntied: loss of step 2"):
        unchanged.not_a_bit_has_changed(machine)


def test_skips_on_a_gpu_are_failures_unless_they_are_for_a_cpu(suite_modules, monkeypatch):
    import programs
    monkeypatch.setattr(programs, "query", lambda what: "9.0")
    assert programs.may_skip("CudaPlugin.SaysWhatIsMissing", "cuda") and programs.may_skip("SwigluMatmul.Forward", "cpu")
    for name in ("SwigluMatmul.Forward", "Fp8Model.AdaptersBesideFrozenWeights", "Types/RecordedReductions.EqualThoseThatAreNot/0"):
        assert not programs.may_skip(name, "cuda")
    monkeypatch.setattr(programs, "query", lambda what: "8.0")
    assert programs.may_skip("SwigluMatmul.Forward", "cuda") and programs.may_skip("Fp8Model.AdaptersBesideFrozenWeights", "cuda")


def test_a_program_whose_filter_matches_nothing_fails(suite_modules, tmp_path):
    import programs
    _, suite = suite_modules
    machine = suite.Suite(BUILD, tmp_path / "work", "cpu", tmp_path / "suite.log")
    with pytest.raises(suite.Problem, match="no test that is called Nothing"):
        programs.gtest("task_tests", "Nothing.*")(machine)


def test_cases_run_on_a_cpu_and_are_not_run_twice(tmp_path):
    """A lost rank, through the same commands that a GPU gets; the next call goes on behind it."""
    where = ["--device", "cpu", "--build", BUILD, "--results", tmp_path / "results.json"]
    done = call(*where, "--only", "gloo-lost-rank")
    assert done.returncode == 0 and "1 passed, 0 failed" in done.stdout, done.stdout + done.stderr
    kept = json.loads((tmp_path / "results.json").read_text())
    assert kept["cases"]["gloo-lost-rank"]["state"] == "passed" and kept["about"]["version"].startswith("lockstep ")
    others = len(call(*where, "--list").stdout.splitlines()) - 1
    left = call(*where, "--budget", 0)
    assert left.returncode == 3 and "1 passed, 0 failed" in left.stdout and f"{others} left" in left.stdout, left.stdout
