"""Ranks that are lost: who died is said at once, over every way that gradients travel."""
from equality import COMMON, TWO
from suite import Case, Problem, Skip, Suite


def lost_rank(backend: str) -> Case:
    name = f"{backend}-lost-rank"

    def work(suite: Suite) -> str:
        if backend == "nccl" and suite.device == "cpu":
            raise Skip("needs a GPU")
        suite.command(["rm", "-rf", suite.folder / name])
        done = suite.command([suite.lockstep, "train", *suite.place(), *COMMON, *TWO, "--dtype", "f32", "--sync-backend", backend, "--output", suite.folder,
                              "--name", name], expect=6, env={"LOCKSTEP_TEST_FAULT": "rank=1 step=4 phase=backward action=kill"}, timeout=90)
        words = "rank 1 of 2 died first, in step 4"
        if words not in done.stderr:
            raise Problem(f"it does not say {words!r}:\n{done.stderr}")
        return "named"

    return Case(name, 10, work)


CASES = [lost_rank("nccl"), lost_rank("cpu"), lost_rank("gloo")]
