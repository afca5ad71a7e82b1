#!/usr/bin/env python3
"""How much of the reduction a trace of `lockstep train --profile N` hides: time of NCCL kernels that other kernels run beside.
  python3 bench/overlap.py runs/NAME/profile/rank-0.json
"""
import gzip
import json
import sys


def union(spans):
    merged = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return merged


def length(spans):
    return sum(end - begin for begin, end in spans)


def common(a, b):
    shared, i, j = 0.0, 0, 0
    while i < len(a) and j < len(b):
        shared += max(0.0, min(a[i][1], b[j][1]) - max(a[i][0], b[j][0]))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return shared


def main(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt") as file:
        events = json.load(file)["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    spans = lambda wanted: union([(event["ts"], event["ts"] + event["dur"]) for event in kernels if ("nccl" in event["name"].lower()) == wanted])
    reduction, compute = spans(True), spans(False)
    if not reduction:
        sys.exit("no NCCL kernels in this trace: profile a run with at least two ranks on GPUs")
    hidden = common(reduction, compute)
    print(f"reduction {length(reduction) / 1e3:.1f} ms, of it {hidden / 1e3:.1f} ms ({hidden / length(reduction):.0%}) beside compute; "
          f"compute {length(compute) / 1e3:.1f} ms, of it {hidden / length(compute):.0%} beside reduction")


if __name__ == "__main__":
    main(sys.argv[1])
