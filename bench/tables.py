#!/usr/bin/env python3
"""Puts what bench/page.py, bench/compare.py and bench/fp8_curve.py measured into docs/performance.md and README.md, between their marks.

    python3 bench/tables.py            writes both pages
    python3 bench/tables.py --check    says whether they hold what bench/measured/ holds; exit code 1 where not

Every number, commit, machine and date comes from the JSON files; nothing is typed. A row that was measured at another commit or on
another machine than most says so itself.
"""
import argparse
import collections
import json
import pathlib
import re
import sys

import fp8_curve
from page import MEASURED, ROWS, ROOT

sys.path.append(str(ROOT / "tools"))
from wrap_docs import wrapped  # noqa: E402

COMPARED = MEASURED.with_name("compare.json")
CURVES = MEASURED.with_name("fp8_curve.json")
MARKS = {"docs/performance.md": ("gpu-rows", "gpu-first-step", "gpu-kernels", "gpu-compare", "fp8-curve"), "README.md": ("speed",)}
README_ROWS = ("full-0.5b", "full-1.5b", "full-7b", "full-7b-fp8", "full-1b", "lora-1b", "lora-1b-packed", "lora-8b", "lora-8b-packed", "qlora-8b-offload")


def gib(count: float) -> str:
    return f"{count / 2**30:.1f} GiB"


def rounded(rate: float) -> str:
    """Three digits and a half: two runs of one row differ by more than the rest."""
    step = 10 ** max(0, len(str(int(rate))) - 3) // 2 or 1
    return f"{round(rate / step) * step:,}"


def where(about: dict) -> str:
    parts = [about["device"], about["lockstep"]]
    parts += [f"LibTorch {about['torch']}"] if "torch" in about else []
    parts += [f"driver {about['driver']}"] if about.get("driver") else []
    return ", ".join(parts)


def driver(memory: dict) -> str:
    """Up to 3cd2032 the driver was asked at the end alone, after an allocator that came near the limit had given back what it kept."""
    seen, tensors = memory["driver_bytes"], memory["peak_bytes"]
    return gib(seen) if seen >= tensors else f"at least {gib(tensors)}"


class Measured:
    def __init__(self, path: pathlib.Path):
        self.rows = {name: row for name, row in json.loads(path.read_text())["rows"].items() if "failed" not in row}
        kinds = collections.Counter(json.dumps(row["about"], sort_keys=True) for row in self.rows.values())
        self.usual = json.loads(kinds.most_common(1)[0][0])

    def provenance(self, names: list[str]) -> str:
        times = sorted(self.rows[name]["at"] for name in names if self.rows[name]["about"] == self.usual)
        span = times[0] if times[0] == times[-1] else f"{times[0]} to {times[-1]}"
        return f"Measured {span}: {where(self.usual)}."

    def others(self, names: list[str]) -> list[dict]:
        """Commits and machines beside the usual one."""
        found = []
        for name in names:
            about = self.rows[name]["about"]
            if about != self.usual and about not in found:
                found.append(about)
        return found

    def remark(self, name: str, names: list[str]) -> str:
        """A mark behind a row that was not measured as most were; footnotes() explains it."""
        about = self.rows[name]["about"]
        return "" if about == self.usual else f" ({1 + self.others(names).index(about)})"

    def footnotes(self, names: list[str]) -> list[str]:
        lines = []
        for number, about in enumerate(self.others(names), 1):
            differs = {key: value for key, value in about.items() if self.usual.get(key) != value}
            at = max(self.rows[name]["at"] for name in names if self.rows[name]["about"] == about)
            lines.append(f"({number}) measured {at}: {', '.join(f'{key} {value}'.replace('lockstep lockstep', 'lockstep') for key, value in differs.items())}.")
        return ["", *lines] if lines else []


def training_rows(measured: Measured) -> str:
    rows = [row for row in ROWS if row.kind == "train" and row.name in measured.rows]
    names = [row.name for row in rows]
    lines = [measured.provenance(names), "",
             "| work | batch x seq x accumulation | settings | tokens/s | MFU | in tensors | as the driver counts | host | blocks keep |", "|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        s = measured.rows[row.name]["summary"]
        shape = f"{row.batch} x {row.seq} x {row.accumulation}"
        settings = " ".join(word for word in row.settings if word not in ("data.kind=random", "trainer.global_batch_size=0"))
        memory = s["memory"]
        mfu = f"{100 * s['mfu']:.1f} %" if s["mfu"] is not None else ""
        mfu = f"at least {mfu}" if mfu and "--packing" in row.settings else mfu
        lines.append(f"| {row.work}{measured.remark(row.name, names)} | {shape} | {f'`{settings}`' if settings else ''} | {rounded(s['tokens_per_second'])} | {mfu} | "
                     f"{gib(memory['peak_bytes'])} | {driver(memory)} | {gib(memory['host_peak_bytes'])} | {s['activations']} |")
    lines += measured.footnotes(names)
    first = rows[0]
    packed = next((row for row in rows if "--packing" in row.settings), None)
    lines += ["", f"The first row, whole: `{measured.rows[first.name]['command']}`; the others change model, batch, accumulation and steps, and add the settings in their column."]
    if packed:
        lines += [f"Packed: {measured.rows[packed.name]['summary']['data'].split(', ', 1)[1]}."]
    return "\n".join(lines)


def first_step(measured: Measured) -> str:
    times = measured.rows["first-step"]["first_step"]
    parts = [f"{way}: {found['median']:.1f} s ({min(found['all'][1:]):.1f} to {max(found['all'][1:]):.1f}; the very first time {found['unprepared']:.1f} s)"
             for way, found in times.items()]
    return ("From the command to the first finished step of LoRA on a 1B model in local safetensors, with a tokenizer of 128,000 tokens, data tokenized and matmuls "
            f"searched before: {'; '.join(parts)}. `python3 bench/page.py --only first-step`, {measured.rows['first-step']['at']}.")


def kernels(measured: Measured) -> str:
    names = [name for name in ("kernels-8b", "kernels-small") if name in measured.rows]
    tables = [measured.rows[name]["kernels"] for name in names]
    every = list(dict.fromkeys(kernel["name"] for table in tables for kernel in table["kernels"]))
    share = lambda table, name: next((f"{100 * k['share']:.0f} % of {'bandwidth' if k['limit'] == 'bandwidth' else 'the matmul rate'}" for k in table["kernels"] if k["name"] == name), "")
    head = [f"{table['model']}, {table['rows']:,} rows ({table['ceilings']['bytes_per_second'] / 1e9:,.0f} GB/s, {table['ceilings']['flops_per_second'] / 1e12:.0f} TFLOP/s)" for table in tables]
    lines = ["; ".join(f"`{measured.rows[name]['command']}`" for name in names) + ":", "", f"| kernel | {' | '.join(head)} |", "|---" * (1 + len(head)) + "|"]
    lines += [f"| {name} | {' | '.join(share(table, name) for table in tables)} |" for name in every]
    return "\n".join(lines)


def compared(path: pathlib.Path) -> str:
    data = json.loads(path.read_text())
    lines = []
    for one in data["comparisons"]:
        about = one["versions"]
        lines += [f"{one['model']}, {one['what']}, {one['batch']} x {one['seq']}, an update every batch; {one['rounds']} rounds in turn, {one['at']}: {about['lockstep']}; torch "
                  f"{about.get('torch')}, transformers {about.get('transformers')}, attention {about.get('attention')}, on {about.get('device')}. `{one['command']}`", "",
                  "| | tokens/s | in tensors | ours is |", "|---|---|---|---|"]
        for side in one["sides"]:
            if "failed" in side:
                lines.append(f"| {side['who']} | {side['failed']} | | |")
                continue
            ratio = f"{side['ratio']:.2f} times as fast ({min(side['ratios']):.2f} to {max(side['ratios']):.2f})" if "ratio" in side else ""
            lines.append(f"| {side['who']} | {side['tokens_per_second']:,.0f} | {gib(side['peak_memory_bytes'])} | {ratio} |")
        lines.append("")
    return "\n".join(lines).rstrip()


def curves(path: pathlib.Path) -> str:
    rows, under_test, about = fp8_curve.read_kept(path)
    lines = [f"`{about['command']}`, {about['at']}: {about['device']}, {about['lockstep']}. Shares of the loss in bf16, smoothed over 20 steps; those with a sign are above (+) or below it.", "",
             *fp8_curve.table(rows, under_test), ""]
    return "\n".join(lines + [f"- {sentence}." for sentence in fp8_curve.costs(rows)])


def cost_of_fp8(path: pathlib.Path) -> str:
    rows, _, _ = fp8_curve.read_kept(path)
    told = []
    for says in dict.fromkeys(row[1] for row in rows):
        finals = [row[4].final for row in rows if row[1] == says]
        rounding = max(abs(row[5].final) for row in rows if row[1] == says)
        told.append(f"{says}: {min(finals):+.2%} to {max(finals):+.2%} ({rounding:.2%})")
    seeds, worst = len({row[2] for row in rows}), max(abs(row[4].largest) for row in rows)
    return (f"What [`--fp8`](docs/performance.md#matmuls-in-8-bits) does to the loss, as a share of bf16's at the end of a run with the same batches, over {seeds} seeds (and what rounding "
            f"alone does): {'; '.join(told)}. At no step of any run is it further away than {worst:.2%}.")


def readme_rows(measured: Measured) -> str:
    names = [name for name in README_ROWS if name in measured.rows]
    work = {row.name: row for row in ROWS}
    lines = [f"`lockstep train` on one {measured.usual['device']}, bf16, optimizer and accumulation included; `tokens/s` are those that the loss counts, memory is what the driver "
             f"counts. {measured.usual['lockstep']}.", "", "| | tokens/s | memory |", "|---|---|---|"]
    for name in names:
        s = measured.rows[name]["summary"]
        host = f" (and {gib(s['memory']['host_peak_bytes'])} of the host's)" if "trainer.offload_checkpoints=true" in work[name].settings else ""
        lines.append(f"| {work[name].work}{measured.remark(name, names)} | {rounded(s['tokens_per_second'])} | {driver(s['memory'])}{host} |")
    lines += measured.footnotes(names)
    if COMPARED.exists():
        sides = [(one, side) for one in json.loads(COMPARED.read_text())["comparisons"] for side in one["sides"] if "ratio" in side]
        told = [f"{side['ratio']:.2f} for {one['model']} ({one['what']}) against {side['who']}" for one, side in sides]
        lines += ["", f"Times as fast as Hugging Face on the same GPU, in turn, with an update every batch: {'; '.join(told)}."] if told else []
    lines += ["", cost_of_fp8(CURVES)] if CURVES.exists() else []
    if "first-step" in measured.rows:
        times = measured.rows["first-step"]["first_step"]
        lines += ["", "A LoRA run of a 1B model in local safetensors has finished its first step "
                  f"{times['chat']['median']:.1f} s after the command, on conversations and matmuls that were prepared before."]
    return "\n".join(lines)


def sections() -> dict[str, str]:
    """What there is to say, by mark."""
    found = {}
    if MEASURED.exists():
        measured = Measured(MEASURED)
        if any(row.kind == "train" and row.name in measured.rows for row in ROWS):
            found["gpu-rows"] = training_rows(measured)
            found["speed"] = readme_rows(measured)
        if "first-step" in measured.rows:
            found["gpu-first-step"] = first_step(measured)
        if any(name.startswith("kernels") for name in measured.rows):
            found["gpu-kernels"] = kernels(measured)
    if COMPARED.exists():
        found["gpu-compare"] = compared(COMPARED)
    if CURVES.exists():
        found["fp8-curve"] = curves(CURVES)
    return found


def filled(text: str, mark: str, content: str, page: str) -> str:
    pattern = re.compile(rf"(<!-- {mark}:begin[^\n]*-->\n).*?(<!-- {mark}:end -->)", re.S)
    if not pattern.search(text):
        raise SystemExit(f"{page} has no lines <!-- {mark}:begin --> and <!-- {mark}:end -->")
    return pattern.sub(lambda marks: marks[1] + content + "\n" + marks[2], text)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--check", action="store_true")
    options = arguments.parse_args()
    found, stale = sections(), []
    for page, marks in MARKS.items():
        path = ROOT / page
        text = before = path.read_text()
        for mark in marks:
            if mark in found:
                text = filled(text, mark, wrapped(found[mark]), page)
        if text != before:
            stale.append(page)
            if not options.check:
                path.write_text(text)
    if options.check and stale:
        print(f"not what bench/measured/ holds: {', '.join(stale)}. Run python3 bench/tables.py.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
