"""Monitoring as only a GPU shows it: parts of a step by the device's clock inside CUDA graphs, NVML's numbers, a slowed rank's name, the cost."""
import json

from suite import ROOT, Case, Problem, Skip, Suite

# Micro-steps of some 10 ms on an H200: long enough to time, short enough that marks would show.
STEPS = ["-f", ROOT / "models/nano.yaml", "--dtype", "bf16", "model.hidden_size=1024", "model.num_layers=12", "model.num_heads=16", "model.kv_heads=16",
         "model.intermediate_size=4096", "trainer.log_interval=20", "trainer.eval_interval=0",
         "data.validation_fraction=0", "trainer.save_interval=0", "monitor.sample_tokens=0", "checkpoint.save_at_end=false"]
LONG = ["--batch-size", 64, "--grad-accum", 2]


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def steady_line(run) -> dict:
    """The last line of a step, long after graphs were recorded."""
    return [line for line in lines_of(run.folder / "metrics.jsonl") if "loss" in line][-1]


def parts_add_up(suite: Suite, name: str, *flags) -> dict:
    if suite.device == "cpu":
        raise Skip("needs a GPU")
    line = steady_line(suite.train(name, *STEPS, *LONG, "--max-steps", 200, *flags))
    seconds = {part: ranks[0] for part, ranks in line["rank_seconds"].items()}
    whole = sum(seconds.values())
    if abs(whole - line["step_seconds"]) > 0.05 * line["step_seconds"]:
        raise Problem(f"parts make {whole:.4f} s, the step is {line['step_seconds']:.4f} s: {seconds}")
    if not 1.2 < seconds["backward"] / seconds["forward"] < 4:
        raise Problem(f"backward is not about twice forward: {seconds}")
    return seconds


def parts_inside_graphs(suite: Suite) -> str:
    with_graphs, without = parts_add_up(suite, "parts-graphs"), parts_add_up(suite, "parts-kernels", "trainer.cuda_graphs=false")
    for part in ("forward", "backward", "optimizer"):
        if not 0.5 < with_graphs[part] / without[part] < 1.3:
            raise Problem(f"{part} takes {with_graphs[part]:.5f} s in graphs and {without[part]:.5f} s kernel by kernel")
    return ", ".join(f"{part} {1000 * seconds:.2f} ms" for part, seconds in with_graphs.items() if seconds > 1e-5)


def gpus_are_read(suite: Suite) -> str:
    if suite.device == "cpu":
        raise Skip("needs a GPU")
    run = suite.train("gpu-readings", *STEPS, *LONG, "--max-steps", 600)
    machine, *rest = lines_of(run.folder / "monitor" / "machine-0.jsonl")
    readings = [line["gpus"][0] for line in rest if line.get("gpus")]
    if machine["gpus"][0]["ranks"] != [0] or len(readings) < 3:
        raise Problem(f"{machine}, {len(readings)} readings")
    busy = readings[len(readings) // 2]
    missing = {"utilization", "memory_bytes", "power_watts", "temperature", "clock_mhz", "throttle"} - set(busy)
    if missing or busy["others"] != 0:
        raise Problem(f"{missing} are not told: {busy}")
    return json.dumps(busy)


def slowed_rank_is_named(suite: Suite) -> str:
    if suite.device == "cpu":
        raise Skip("needs a GPU")
    # Short steps: a GPU that is behind its host anyway hides a host that is late.
    run = suite.train("slowed-rank", *STEPS, "--ranks", 2, "--batch-size", 2, "--max-steps", 200, env={"LOCKSTEP_TEST_FAULT": "rank=1 action=slow phase=reading_data step=1 until=9999 ms=100"})
    named = [line for line in lines_of(run.folder / "monitor" / "machine-0.jsonl") if line.get("event") == "straggler"]
    if not named or (named[0]["rank"], named[0]["reason"]) != (1, "data"):
        raise Problem(f"named: {named}")
    return named[0]["text"]


CASES = [Case("parts-inside-graphs", 40, parts_inside_graphs), Case("gpu-readings", 30, gpus_are_read), Case("slowed-rank", 40, slowed_rank_is_named)]
