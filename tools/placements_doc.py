"""docs/placements.md: which placement for which model on which machine, as `lockstep plan` says it."""
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent

OPENING = """# Which placement when

<!-- Made by `make docs` from what `lockstep plan` prints; `make check` compares. -->

What `lockstep plan` proposes for models of four sizes on four machines, one sample of 2,048 tokens at once on each GPU: the smallest change of the
settings that fits, and what each rank then holds. Nothing in brackets: it fits as it is. Changes that keep the numbers come first (placements, then
recomputation, then activations in host memory); where none fits on these GPUs the table says on how many it would. Ask for your own:

    lockstep plan -f CONFIG --gpus 8 --memory 24GiB

A GPU of 24 GB is counted with 23.5 GiB, one of 80 GB with 79 GiB: what is left beside a desktop and the driver.
"""

SHAPE = "model.name={} model.hidden_size={} model.num_layers={} model.num_heads={} model.kv_heads=8 model.intermediate_size={} model.vocab_size={}"
MODELS = {"8B": SHAPE.format("8b", 4096, 32, 32, 14336, 128256), "14B": SHAPE.format("14b", 5120, 48, 40, 13824, 152064), "32B": SHAPE.format("32b", 5120, 64, 40, 27648, 152064),
          "70B": SHAPE.format("70b", 8192, 80, 64, 28672, 128256)}
TRAININGS = {"all weights": "", "LoRA": "lora.enabled=true lora.target_modules=all-linear", "LoRA beside 4-bit weights": "lora.enabled=true lora.target_modules=all-linear model.load_in_4bit=true"}
MACHINES = {"1 x 24 GB": (1, "23.5GiB"), "2 x 3090": (2, "23.5GiB"), "4 x 4090": (4, "23.5GiB"), "8 x H100": (8, "79GiB")}
ONE_SAMPLE = ["trainer.batch_size=1", "data.seq_len=2048"]


def plan(lockstep, gpus, memory, settings, *more, file="models/llama-3.1-8b.yaml"):
    command = [str(lockstep), "plan", "-f", file, *ONE_SAMPLE, *settings, "--gpus", str(gpus), "--memory", memory, *more]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout


def cell(lockstep, gpus, memory, settings):
    answer = json.loads(plan(lockstep, gpus, memory, settings, "--json"))["memory"]
    change = next((one for one in answer["changes"] if one["effect"] == "the same training"), None)
    if change is None:
        return "no"
    size = f"{change['total'] / 2**30:.1f} GiB"
    said = " ".join(f"`{setting.split('.', 1)[1]}`" for setting in change["settings"])
    if change["ranks"] != gpus:
        return f"on {change['ranks']} GPUs"
    return f"{size} ({said})" if said else size


def markdown(lockstep):
    lines = [OPENING]
    for training, settings in TRAININGS.items():
        lines += [f"## {training[0].upper()}{training[1:]}", "", "| | " + " | ".join(MACHINES) + " |", "|---" * (len(MACHINES) + 1) + "|"]
        for model, shape in MODELS.items():
            cells = [cell(lockstep, gpus, memory, [*shape.split(), *settings.split()]) for gpus, memory in MACHINES.values()]
            lines.append("| " + " | ".join([model, *cells]) + " |")
        lines.append("")
    lines += ["## Two of them in full", ""]
    for machine, words in {"2 x 3090": "two GPUs of 24 GB", "4 x 4090": "four"}.items():
        settings = [*TRAININGS["LoRA beside 4-bit weights"].split(), "parallel.shard=full"]
        lines += [f"The 70B shape, LoRA beside 4-bit weights, `parallel.shard=full`, {words}:", "", "```",
                  plan(lockstep, *MACHINES[machine], settings, file="models/llama-3.1-70b.yaml").rstrip(), "```", ""]
    lines.pop()
    return "\n".join(lines) + "\n"
