"""From a model folder to an adapter and its text, as people do it: LoRA, 4 bits, 8-bit matmuls, packed records, resuming, generating."""
import json
import shutil

from equality import COMMON, DETERMINISTIC, ONE
from suite import ROOT, Case, Problem, Run, Skip, Suite, expect_close, expect_same_bytes, tensors_in

EXAMPLE = ROOT / "examples" / "chat-lora"
STEPS = 24
ADAPTER = ["-f", EXAMPLE / "keeper.yaml", "--data", EXAMPLE / "chat.jsonl", "--batch-size", 16, "--max-steps", STEPS, "trainer.log_interval=1"]
PACKED = ["--packing", "trainer.global_batch_size=4", "--batch-size", 4]
FP8_ON_BLOCKS = 0.05  # of the loss, beside bf16: e4m3 keeps 3 bits
SIXTEEN_BITS, F32 = 1e-2, 1e-4  # a learning rate of 3e-3 over a model of 128 makes rounding grow faster than nano does


def model_folder(suite: Suite):
    """The example's model with its tokenizer, trained on the device and exported; made once."""
    model = suite.folder / "model"
    if (model / "config.json").exists():
        return model
    shutil.rmtree(suite.folder / "tokenizer", ignore_errors=True)
    suite.command([suite.lockstep, "data", "train-tokenizer", "--input", EXAMPLE / "plain.jsonl", EXAMPLE / "chat.jsonl", "--field", "messages",
                   "--vocab-size", 768, "--chat-template", "chatml", "--output", suite.folder / "tokenizer"])
    base = suite.train("base", "-f", EXAMPLE / "base.yaml", "--data", EXAMPLE / "plain.jsonl", "--tokenizer", suite.folder / "tokenizer", "--batch-size", 16)
    if not base.losses()[-1] < 0.5:
        raise Problem(f"the base did not learn its 76 answers: loss {base.losses()[-1]}")
    suite.command([suite.lockstep, "export", "--run", base.folder, "--output", model])
    return model


def adapter(suite: Suite, name: str, *args, place: list | None = None) -> Run:
    return suite.train(name, *ADAPTER, "--model", model_folder(suite), *args, place=place)


def as_on_a_cpu(name: str, *args, tolerance: float = F32) -> Case:
    """The device's losses are a CPU's, and the adapter is a PEFT folder."""

    def work(suite: Suite) -> str:
        ours = adapter(suite, name, *args)
        theirs = adapter(suite, f"{name}-cpu", *args, "--ranks", 1, place=["--device", "cpu"])
        if not (ours.folder / "adapter" / "adapter_config.json").exists():
            raise Problem(f"{ours.folder} has no adapter")
        return expect_close(name, ours.losses(), theirs.losses(), tolerance)

    return Case(name, 15, work)


def packed_losses(suite: Suite) -> str:
    """Packed rows in 16 bits, over the kernels that packed attention has, against f32 on a CPU."""
    ours = adapter(suite, "lora-packed-bf16", *PACKED, "--dtype", "bf16")
    theirs = adapter(suite, "lora-packed-cpu", *PACKED, "--dtype", "f32", "--ranks", 1, place=["--device", "cpu"])
    if "packs of" not in ours.summary()["data"]:
        raise Problem(f"nothing was packed: {ours.summary()['data']}")
    return expect_close("packed", ours.losses(), theirs.losses(), SIXTEEN_BITS)


def fp8(name: str, train) -> Case:
    """Close to bf16, and not the same: then it was not bf16."""

    def work(suite: Suite) -> str:
        if suite.device == "cpu":
            raise Skip("needs a GPU")
        plain, eight = train(suite, f"{name}-bf16"), train(suite, name, "trainer.fp8=true")
        if not eight.summary()["fp8"] or plain.losses() == eight.losses():
            raise Problem("the losses are those of bf16: nothing was multiplied in 8 bits")
        return expect_close(name, eight.losses(), plain.losses(), FP8_ON_BLOCKS)

    return Case(name, 12, work)


def full_fp8(suite: Suite, name: str, *args) -> Run:
    return suite.train(name, *COMMON, *ONE, "--dtype", "bf16", *args)


def lora_fp8(suite: Suite, name: str, *args) -> Run:
    return adapter(suite, name, "--dtype", "bf16", *args)


def resumed(name: str, start, bitwise: bool, tolerance: float = 0) -> Case:
    """Stopped at step 6 of 12 and gone on with, against never stopped."""

    def work(suite: Suite) -> str:
        more = [DETERMINISTIC] if bitwise else []
        schedule = ["--max-steps", 12, "trainer.save_interval=6", *more]
        whole = start(suite, f"{name}-whole", *schedule)
        stopped = start(suite, name, *schedule)
        shutil.rmtree(stopped.checkpoint(12))
        if not stopped.checkpoint(6).exists():
            raise Problem(f"{stopped.checkpoint(6)} was not saved")
        again = suite.command(resume_command(suite, name))
        if "at step 6" not in again.stdout + again.stderr:
            raise Problem(f"it did not go on at step 6:\n{again.stdout[-2000:]}")
        if bitwise:
            return expect_same_bytes(name, stopped.tensors(12), whole.tensors(12))
        return expect_close(name, stopped.losses(), whole.losses(), tolerance)

    return Case(name, 15, work)


def resume_command(suite: Suite, name: str) -> list:
    config = suite.folder / f"{name}.yaml"
    shutil.copy(suite.folder / name / "config.yaml", config)
    return [suite.lockstep, "train", "-f", config, "--output", suite.folder, "--name", name, "--resume", "auto", *suite.place()]


def dense(dtype: str):
    return lambda suite, name, *args: suite.train(name, *COMMON, *ONE, "--dtype", dtype, *args)


def lora(*more):
    return lambda suite, name, *args: adapter(suite, name, *more, *args)


def generated(name: str, *args) -> Case:
    """The likeliest tokens on the device are those of a CPU, and an adapter changes them."""

    def work(suite: Suite) -> str:
        model = model_folder(suite)
        trained = Run(suite.folder / "keeper")
        if not (trained.folder / "adapter").exists():
            suite.train("keeper", "-f", EXAMPLE / "keeper.yaml", "--data", EXAMPLE / "chat.jsonl", "--model", model, "--batch-size", 16)
        question = (EXAMPLE / "questions.txt").read_text().splitlines()[0]
        texts = {}
        for who, more in (("base", []), ("adapter", ["--adapter", trained.folder / "adapter"])):
            for device in (("cuda" if suite.device == "cuda" else "cpu"), "cpu"):
                done = suite.command([suite.lockstep, "generate", "--model", model, *more, "--chat", question, "--temperature", 0, "--max-tokens", 40,
                                      "--no-stream", "--device", device, "--dtype", "f32", *args])
                texts[who, device] = done.stdout
        for who in ("base", "adapter"):
            if texts[who, suite.device] != texts[who, "cpu"] or not texts[who, "cpu"].strip():
                raise Problem(f"{who}: {texts[who, suite.device]!r} and on a CPU {texts[who, 'cpu']!r}")
        if texts["base", "cpu"] == texts["adapter", "cpu"]:
            raise Problem(f"the adapter changes nothing: {texts['base', 'cpu']!r}")
        return json.dumps(texts["adapter", "cpu"].strip()[:40])

    return Case(name, 15, work)


def adapter_survives_a_second_run(suite: Suite) -> str:
    """Training on from an adapter folder begins where it ended."""
    first = adapter(suite, "lora-first", "--dtype", "f32")
    second = adapter(suite, "lora-second", "--dtype", "f32", "--max-steps", 4, f"lora.adapters={first.folder / 'adapter'}", "trainer.learning_rate=1e-8")
    if not abs(second.losses()[0] - first.losses()[-1]) < 0.5 * abs(first.losses()[0] - first.losses()[-1]):
        raise Problem(f"ended at {first.losses()[-1]}, went on from {second.losses()[0]}")
    return expect_same_shape(tensors_in(first.folder / "adapter"), tensors_in(second.folder / "adapter"))


def expect_same_shape(ours: dict, theirs: dict) -> str:
    if {name: len(data) for name, data in ours.items()} != {name: len(data) for name, data in theirs.items()}:
        raise Problem("the adapters have other tensors")
    return f"{len(ours)} tensors"


CASES = [
    as_on_a_cpu("lora-f32", "--dtype", "f32"),
    Case("lora-packed", 15, packed_losses),
    as_on_a_cpu("lora-4bit", "--dtype", "f32", "--load-in-4bit"),
    fp8("fp8", full_fp8),
    fp8("lora-fp8", lora_fp8),
    resumed("resume-bf16-deterministic", dense("bf16"), bitwise=True),
    resumed("resume-lora-deterministic", lora("--dtype", "bf16", "lora.dropout=0.1"), bitwise=True),
    resumed("resume-bf16", dense("bf16"), bitwise=False, tolerance=SIXTEEN_BITS),
    generated("generate"),
    generated("generate-4bit", "--load-in-4bit"),
    as_on_a_cpu("lora-dora", "--dtype", "f32", "lora.dora=true"),
    as_on_a_cpu("lora-8bit", "--dtype", "f32", "--load-in-8bit"),
    resumed("resume-4bit-packed-deterministic", lora("--dtype", "bf16", "--load-in-4bit", *PACKED), bitwise=True),
    resumed("resume-f16-deterministic", dense("f16"), bitwise=True),
    Case("adapter-goes-on", 10, adapter_survives_a_second_run),
]
