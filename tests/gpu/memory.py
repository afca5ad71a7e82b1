"""What `lockstep plan` says a rank takes, beside what it takes: one rank of several, the others modelled."""
import json

from suite import ROOT, Case, Problem, Skip, Suite

LORA = ["lora.enabled=true", "lora.target_modules=all-linear", "lora.rank=16"]
# Name: model, ranks, samples at once, tokens each, settings.
SHAPES = {
    "none": ("qwen2.5-0.5b", 1, 16, 1024, []),
    "optimizer": ("qwen2.5-0.5b", 4, 16, 1024, ["parallel.shard=optimizer"]),
    "full": ("qwen2.5-0.5b", 4, 16, 1024, ["parallel.shard=full"]),
    "LoRA, full": ("llama-3.2-1b", 4, 4, 2048, [*LORA, "parallel.shard=full"]),
    "4-bit LoRA, full": ("llama-3.2-1b", 4, 4, 2048, [*LORA, "model.load_in_4bit=true", "parallel.shard=full"]),
}
PEAK, DRIVER = 0.03, 0.05


def planned(suite: Suite, model: str, ranks: int, batch: int, seq: int, settings: list) -> dict:
    done = suite.command([suite.lockstep, "plan", "-f", ROOT / f"models/{model}.yaml", "--gpus", ranks, "--json", f"trainer.batch_size={batch}", f"data.seq_len={seq}",
                          "monitor.sample_tokens=0", *settings])
    return json.loads(done.stdout)["memory"]


def taken(suite: Suite, model: str, ranks: int, batch: int, seq: int, settings: list) -> dict:
    others = ["--ranks", ranks, "--link", "infinite"] if ranks > 1 else []
    done = suite.command([suite.lockstep, "bench", "step", "--model", model, "--batch", batch, "--seq", seq, "--steps", 2, "--warm-up", 5, "--json", *others, *settings])
    return json.loads(done.stdout)


def as_planned(suite: Suite) -> str:
    if suite.device == "cpu":
        raise Skip("needs a GPU")
    notes, wrong = [], []
    for name, shape in SHAPES.items():
        plan, run = planned(suite, *shape), taken(suite, *shape)
        beside = plan["total"] - plan["at_most"].get("communicators", 0)  # modelled links have none
        peak, driver = plan["tensors"] / run["peak_memory_bytes"] - 1, beside / run["driver_memory_bytes"] - 1
        notes.append(f"{name} {peak:+.1%} {driver:+.1%}")
        if abs(peak) > PEAK or abs(driver) > DRIVER:
            wrong.append(f"{name}: {plan} and {run}")
    if wrong:
        raise Problem("\n".join([", ".join(notes), *wrong]))
    return ", ".join(notes)


CASES = [Case("memory-plan", 50, as_planned)]
