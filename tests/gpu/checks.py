"""`lockstep check` on a machine with a GPU: all is well, and its speeds are those of `bench comm`."""
import json

from suite import Case, Problem, Skip, Suite


def all_is_well(suite: Suite) -> str:
    if suite.device == "cpu":
        raise Skip("needs a GPU")
    done = suite.command([suite.lockstep, "check", "--json", "--ranks", 2, "--output", suite.folder], timeout=200)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    results = {line["check"]: line for line in lines if "check" in line}
    for name in ("start", "driver", "gpus", "gloo", "nccl", "training"):
        if results[name]["verdict"] != "ok":
            raise Problem(f"{name}: {results[name]}")
    gpu = results["gpus"]["numbers"][0]
    unknown = [key for key in ("memory_bytes", "compute_capability", "temperature_c", "power_w", "sm_clock_mhz", "pcie_width", "throttled") if key not in gpu]
    if unknown:
        raise Problem(f"the driver was not asked for {unknown}: {gpu}")
    sizes = sorted({line["bytes"] for line in results["nccl"]["numbers"]})[1:]  # the smallest is all latency
    bench = suite.command([suite.lockstep, "bench", "comm", "--json", "--ranks", 2, "--sync-backend", "nccl", "--sizes", ",".join(map(str, sizes))], timeout=120)
    measured = {(line["operation"], line["bytes"]): line["bus_bytes_per_second"] for line in map(json.loads, bench.stdout.splitlines())}
    worst = 1.0
    for line in results["nccl"]["numbers"]:
        if line["bytes"] in sizes:
            ratio = line["bus_bytes_per_second"] / measured[line["operation"], line["bytes"]]
            worst = max(worst, ratio, 1 / ratio)
    # Two ranks on one GPU take turns on it, so the same measurement varies from call to call.
    if worst > 2:
        raise Problem(f"speeds of check and bench comm differ by {worst:.2f}")
    return f"{len(measured)} collectives within a factor {worst:.2f} of bench comm"


CASES = [Case("check", 40, all_is_well)]
