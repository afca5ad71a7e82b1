"""The C++ test programs on the device: what passed, what failed, and by name what was skipped."""
import fnmatch
import json
import pathlib

from suite import Case, Problem, Suite, library_path, query

# Tests that say of themselves that they are for a CPU. Any other skip on a GPU is a failure: whether 8-bit products, fused SwiGLU or
# recorded reductions are there is what the suite wants to know, and the function under test must not decide that alone.
FOR_A_CPU = {
    "Recompute.BlocksHoldWhatIsCounted": "counts what a CPU's allocator gives",
    "Recompute.AdaptersTakeWhatIsCounted": "counts what a CPU's allocator gives",
    "Cpu/InstructionSets.*": "the CPU's kernels, with each set of instructions",
    "CudaPlugin.SaysWhatIsMissing": "the plug-in is loaded already",
    "Embedding.RefusesTokensOutsideTheVocabularyOnCpu": "on CUDA tokens are checked before they are copied there",
}
NEED_CAPABILITY = {"SwigluMatmul.*": (9, 0), "Fp8*": (8, 9), "*/Recorded.*": (8, 9)}


def capability() -> tuple[int, ...]:
    return tuple(map(int, query("compute_cap").split(".")))


def reason_to_skip(name: str) -> str | None:
    return next((reason for pattern, reason in FOR_A_CPU.items() if fnmatch.fnmatch(name, pattern)), None)


def may_skip(name: str, device: str) -> bool:
    if device != "cuda" or reason_to_skip(name):
        return True
    return any(fnmatch.fnmatch(name, pattern) and capability() < least for pattern, least in NEED_CAPABILITY.items())


def read_report(path: pathlib.Path) -> tuple[int, list[str], list[str]]:
    passed, failed, skipped = 0, [], []
    for group in json.loads(path.read_text())["testsuites"]:
        for test in group["testsuite"]:
            name = f"{test['classname']}.{test['name']}"
            if test.get("failures"):
                failed.append(name)
            elif test.get("result") == "SKIPPED":
                skipped.append(name)
            else:
                passed += 1
    return passed, failed, skipped


def gtest(program: str, chosen: str = "*"):
    def work(suite: Suite) -> str:
        report = suite.folder / f"{program}.json"
        report.unlink(missing_ok=True)
        device = "cuda:0" if suite.device == "cuda" else "cpu"
        done = suite.command([suite.build / "bin" / program, f"--gtest_filter={chosen}", f"--gtest_output=json:{report}"], expect=None, timeout=900,
                             env={"LOCKSTEP_TEST_DEVICE": device, "LD_LIBRARY_PATH": library_path()})
        if not report.exists():
            raise Problem(f"{program} died with {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}")
        passed, failed, skipped = read_report(report)
        suite.skipped += skipped
        if failed or done.returncode != 0:
            raise Problem(f"{len(failed)} of {program} failed: {', '.join(failed)}\n{done.stdout[-6000:]}{done.stderr[-2000:]}")
        if passed + len(skipped) == 0:
            raise Problem(f"{program} has no test that is called {chosen}")
        wrongly = [name for name in skipped if not may_skip(name, suite.device)]
        if wrongly:
            raise Problem(f"skipped, though this GPU can do it: {', '.join(wrongly)}")
        return f"{passed} passed, {len(skipped)} skipped"

    return work


FOUR_RANKS = "Sizes/*/4"  # of parallel_tests

CASES = [
    Case("model_tests", 60, gtest("model_tests")),
    Case("train_tests", 30, gtest("train_tests")),
    Case("task_tests", 15, gtest("task_tests")),
    # Over NCCL: run_ranks fails where ranks on a GPU meet over anything else.
    Case("comm_tests", 60, gtest("comm_tests", "-Failures.LostRank*")),  # a lost rank: nccl-lost-rank, as people see it
    Case("parallel_tests", 40, gtest("parallel_tests", f"Sizes/*:Replicas.Start*:Types/*-{FOUR_RANKS}")),
    Case("layout_tests", 150, gtest("layout_tests", "Layouts.OnAGpuTooOverNccl")),  # the whole table is for CPUs
    # Four NCCL ranks of one GPU wait for each other's time slices, so they come late.
    Case("parallel_tests-four-ranks", 60, gtest("parallel_tests", FOUR_RANKS)),
]
