#!/usr/bin/env python3
"""Checks who includes whom: rooms may only look towards base, and the two programs never see each other."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# room -> rooms it may include, beside itself and base
MAY = {
    "base": set(),
    "config/run_config.h": set(),  # settings as plain structs: all that layout sees of them
    "layout": {"config/run_config.h"},
    "config": {"layout"},
    "record": set(),
    "text": set(),
    "records": {"config", "text"},
    "front/launch": {"config", "record"},
    "front/check": {"config", "record", "front/launch"},
    "front/serve": {"config", "record"},
    "front/plan": {"config"},
    "front/tokenize": {"text"},
    # A run as an object with events: it may not see whatever shows it.
    "front/job": {"config", "record", "records", "front/launch"},
    "front/show": {"config", "record", "records", "text", "front/launch", "front/job", "front/plan"},
    "front/app": {"config", "record", "text", "records", "front/launch", "front/check", "front/serve", "front/plan", "front/tokenize",
                  "front/job", "front/show"},
    "rank/comm": {"config", "record"},
    "rank/kernels": {"config"},
    "rank/data": {"config", "text", "records"},
    "rank/model": {"config", "rank/kernels"},
    "rank/task": {"config", "text", "rank/data", "rank/model", "rank/kernels"},
    "rank/optim": {"config", "rank/comm", "rank/kernels", "rank/model"},
    "rank/parallel": {"config", "record", "rank/comm", "rank/kernels", "rank/model"},
    "rank/checkpoint": {"record"},
    "rank/hub": {"config", "rank/kernels", "rank/model", "rank/checkpoint"},
    "rank/train": {"config", "record", "text", "rank/comm", "rank/kernels", "rank/data", "rank/model", "rank/task", "rank/optim", "rank/parallel",
                   "rank/checkpoint", "rank/hub"},
    "rank/verbs": {"config", "record", "text", "rank/comm", "rank/model", "rank/task", "rank/parallel", "rank/checkpoint", "rank/hub", "rank/train"},
    "rank/bench": {"config", "record", "rank/comm", "rank/kernels", "rank/data", "rank/model", "rank/optim", "rank/parallel", "rank/train", "rank/verbs"},
    "rank/app": {"config", "record", "rank/comm", "rank/kernels", "rank/train", "rank/verbs", "rank/bench"},
}
# LibTorch is for the rank program alone; its distributed headers are slow to compile and stay in comm's .cpp files.
TORCH = re.compile(r"<(ATen|c10|torch|caffe2)/")
# Text becomes a tree of JSON in one place, which knows how deep it may be.
JSON_READERS = re.compile(r"\b(?:[Jj]son|ordered_json)::(?:parse|sax_parse|accept)\(")
# A run's own rooms tell what happens by events; whoever shows it prints, owns the terminal and takes the process's signals.
SILENT = ("front/job", "front/launch")
PRINTS = re.compile(r"\b(?:std::f?put[sc]|std::f?printf|std::fwrite|fmt::print|std::cout|std::cerr|isatty|sigaction|pthread_sigmask|base::log_\w+)\b")


def room_of(path: str) -> str | None:
    return next((room for room in sorted(MAY, key=len, reverse=True) if path == room or path.startswith(room + "/")), None)


def may_include(room: str, other: str) -> bool:
    # Whoever may see the settings' readers may see the settings, and what a model is made of.
    through_config = {"config/run_config.h", "layout"} if "config" in MAY[room] | {room} else set()
    return other in {room, "base"} | MAY[room] | through_config


def main() -> int:
    mistakes = []
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix not in {".h", ".cpp", ".cu", ".cuh"}:
            continue
        name = path.relative_to(ROOT / "src").as_posix()
        room = room_of(name)
        if room is None:
            continue
        text = path.read_text()
        if not text.startswith("//"):
            mistakes.append(f"src/{name}:1: the first line must say the file's job in one sentence")
        for number, line in enumerate(text.splitlines(), 1):
            if JSON_READERS.search(line) and name != "base/json.cpp":
                mistakes.append(f"src/{name}:{number}: JSON is read by base::parse_json, which limits its depth")
            if room in SILENT and PRINTS.search(line.split("//")[0]):
                mistakes.append(f"src/{name}:{number}: {room} neither prints nor touches the terminal or signals")
            found = re.match(r'\s*#\s*include\s+([<"][^>"]+[>"])', line)
            if not found:
                continue
            target = found.group(1)
            if TORCH.match(target):
                if not room.startswith("rank/") or path.suffix in {".cu", ".cuh"}:
                    mistakes.append(f"src/{name}:{number}: {target}: LibTorch does not belong here")
                elif "distributed/c10d" in target and not (room == "rank/comm" and path.suffix == ".cpp"):
                    mistakes.append(f"src/{name}:{number}: {target}: only comm's .cpp files include c10d")
                elif target in {"<torch/torch.h>", "<torch/all.h>", "<ATen/ATen.h>"}:
                    mistakes.append(f"src/{name}:{number}: {target}: include the operators that are used, it compiles far faster")
                continue
            other = room_of(target.strip('<">'))
            if other and not may_include(room, other):
                mistakes.append(f"src/{name}:{number}: {room} may not include {other}")
    print("\n".join(mistakes) if mistakes else "include directions: good")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
