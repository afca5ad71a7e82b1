"""Golden numbers of a GPU: losses, gradient norms and weights of 20 steps, to the last bit, in deterministic mode.

The cases are those of tests/golden; a file is of one kind of GPU, and another kind's numbers are none of its business:

    python3 tests/gpu/run.py --make-golden tests/golden      makes gpu-KIND.json there for the GPU of this machine
    python3 tests/gpu/run.py --only golden                   compares with it

Like the files of the CPU's kernels it is made by this script and never edited.
"""
import concurrent.futures
import hashlib
import json
import pathlib
import sys

from finetuning import EXAMPLE
from suite import ROOT, Case, Problem, Run, Skip, Suite, query

sys.path.append(str(ROOT / "tests" / "golden"))
from cases import CASES as SHARED, ON_A_GPU_ALONE, in_words  # noqa: E402

STEPS = 20
COMMON = ["-f", ROOT / "models/nano.yaml", "--max-steps", STEPS, "trainer.log_interval=1", "trainer.eval_interval=0", "trainer.global_batch_size=12",
          "trainer.warmup_steps=3", "trainer.learning_rate=0.003", "monitor.sample_tokens=0", "trainer.save_interval=0", "model.tie_embeddings=false",
          "data.stories=2000", "trainer.deterministic=true"]
AT_ONCE = 8  # a run of this size leaves most of a GPU idle


def kind_of_gpu(name: str) -> str:
    return name.lower().removeprefix("nvidia ").replace(" ", "-")


def golden_file(folder: pathlib.Path, gpu: str) -> pathlib.Path:
    return folder / f"gpu-{kind_of_gpu(gpu)}.json"


def records(suite: Suite) -> list:
    return ["--data", EXAMPLE / "chat.jsonl", "--tokenizer", suite.folder / "golden-tokenizer", "data.kind=records", "model.max_seq_len=256", "data.seq_len=240"]


def make_tokenizer(suite: Suite) -> None:
    folder = suite.folder / "golden-tokenizer"
    suite.command(["rm", "-rf", folder])
    suite.command([suite.lockstep, "data", "train-tokenizer", "--input", EXAMPLE / "chat.jsonl", "--field", "messages", "--vocab-size", 768,
                   "--chat-template", "chatml", "--output", folder])


def fingerprint(run: Run) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest()[:16] for name, data in sorted(run.tensors(STEPS).items())}


def numbers(suite: Suite, case: str) -> dict:
    arguments = in_words(case, RECORDS=lambda: records(suite), WIDE=list)
    if "--dtype" not in arguments:
        arguments += ["--dtype", "f32"]
    ranks = int(arguments[arguments.index("--ranks") + 1]) if "--ranks" in arguments else 1
    if ranks > 1 and suite.device == "cuda":
        arguments += ["--sync-backend", "nccl"]
    if not any("batch_size" in str(word) for word in arguments):
        arguments += ["--batch-size", 12 // ranks]
    run = suite.train(f"golden-{case}", *COMMON, *arguments)
    steps = [line for line in map(json.loads, (run.folder / "metrics.jsonl").read_text().splitlines()) if "loss" in line]
    if len(steps) != STEPS:
        raise Problem(f"{case}: {len(steps)} steps, not {STEPS}")
    found = {what: [float(step[what]).hex() for step in steps] for what in ("loss", "grad_norm")} | {"tensors": fingerprint(run)}
    suite.command(["rm", "-rf", run.folder])
    return found


def everything(suite: Suite) -> dict[str, dict]:
    make_tokenizer(suite)
    cases = [*SHARED, *(ON_A_GPU_ALONE if suite.device == "cuda" else {})]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE if suite.device == "cuda" else 1) as pool:
        return dict(zip(cases, pool.map(lambda case: numbers(suite, case), cases)))


def first_difference(before: dict, now: dict) -> str:
    for what in ("loss", "grad_norm"):
        for step, (golden, found) in enumerate(zip(before[what], now[what], strict=True), 1):
            if golden != found:
                return f"{what} of step {step}: {float.fromhex(golden)!r} became {float.fromhex(found)!r}"
    different = sorted(name for name in before["tensors"].keys() | now["tensors"].keys() if before["tensors"].get(name) != now["tensors"].get(name))
    return f"{len(different)} tensors, first {different[0]}" if different else ""


def not_a_bit_has_changed(suite: Suite) -> str:
    gpu = query("name") if suite.device == "cuda" else "cpu"
    path = golden_file(suite.golden, gpu)
    if not path.exists():
        raise Skip(f"there are no golden numbers of a {gpu}: --make-golden makes {path.name}")
    golden, now = json.loads(path.read_text()), everything(suite)
    if golden.keys() != now.keys():
        raise Problem(f"{path.name} has other cases: {sorted(golden.keys() ^ now.keys())}")
    changed = {case: why for case in now if (why := first_difference(golden[case], now[case]))}
    if changed:
        raise Problem(f"{len(changed)} of {len(now)} cases changed:\n" + "\n".join(f"{case}: {why}" for case, why in changed.items()))
    return f"{len(now)} cases, bit for bit"


def make(suite: Suite, folder: pathlib.Path) -> None:
    path = golden_file(folder, query("name") if suite.device == "cuda" else "cpu")
    path.write_text(json.dumps(everything(suite), indent=0) + "\n")
    print(f"{path} made")


CASES = [Case("golden", 60, not_a_bit_has_changed)]
