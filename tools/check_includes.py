#!/usr/bin/env python3
"""Checks who includes whom by the table src/rooms.txt: rooms look towards base, and the two programs never see each other."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = "src/rooms.txt"
SOURCES = {".h", ".cpp", ".cu", ".cuh"}
# Of no room: what every room is compiled with.
EVERYWHERE = {"pch_plain.h", "pch_rank.h"}
INCLUDE = re.compile(r'\s*#\s*include\s+([<"][^>"]+[>"])')
# LibTorch is for the rank program alone; its distributed headers are slow to compile and stay in comm's .cpp files.
TORCH = re.compile(r"<(ATen|c10|torch|caffe2)/")
# Text becomes a tree of JSON in one place, which knows how deep it may be.
JSON_READERS = re.compile(r"\b(?:[Jj]son|ordered_json)::(?:parse|sax_parse|accept)\(")
# Locks that lint can check are those of base/mutex.h.
PLAIN_LOCKS = re.compile(r"\bstd::(?:\w*mutex|condition_variable\w*|lock_guard|scoped_lock|unique_lock|shared_lock)\b")
# Ids come from base::fresh_id: std::random_device in a program with its own libstdc++ needs glibc 2.36, and nothing else does.
RANDOM_DEVICE = re.compile(r"\bstd::random_device\b")
# A file of a process that has ended throws, where it is read by these, at whoever looks after that process.
STREAM_ITERATORS = re.compile(r"\bstd::istreambuf_iterator\b")
# A run's own rooms tell what happens by events; whoever shows it prints, owns the terminal and takes the process's signals.
SILENT = ("front/job", "front/launch", "front/check", "front/catalog")
PRINTS = re.compile(r"\b(?:std::f?put[sc]|std::f?printf|std::fwrite|fmt::print|std::cout|std::cerr|isatty|sigaction|pthread_sigmask|base::log_\w+)\b")

# What a process has once belongs to an object that puts it back, so that runs can follow one another in it. Who may touch what:
VARIABLE = re.compile(r"^\s*(?:inline\s+)?(?:static|thread_local)\s+(?!const\b|constexpr\b|inline\b)[^()=;{]*?\w(?:\s*=|\s*\{|;|\((?![^)]*\w[&*>]?\s[&*]*\w|\)))")
PROCESS_WIDE = [
    ("variables that outlive their function", VARIABLE, {
        "base/files.cpp",  # the file system: no members
        "base/log.cpp",  # standard error; LogPrefix owns what its lines begin with
        "base/signal_flag.cpp",  # handlers know nothing but the signal's number; SignalFlag owns its flag
        "rank/kernels/session.cpp", "rank/kernels/plugin/session.cpp",  # who is at work; Session owns what is kept
    }),
    ("the environment's variables", re.compile(r"\b(?:un)?(?:set|put)env\("), {
        "rank/app/main.cpp", "rank/kernels/plugin.cpp", "rank/kernels/broken_tiles.cpp",  # before other threads, the same for every run
    }),
    ("signals", re.compile(r"::sigaction\(|(?<!\w)signal\(\w*SIG|(?<!\w)signal\(signal"), {
        "base/signal_flag.cpp", "front/show/signals.cpp", "front/launch/process.cpp", "rank/kernels/broken_tiles.cpp",  # the latter in a child
    }),
    ("LibTorch's modes", re.compile(r"globalContext\(\)\.set|set_num_threads\(|manual_seed\("), {
        "rank/kernels/session.cpp", "rank/kernels/broken_tiles.cpp", "rank/model/weights/quantized.cpp",
    }),
]


def read_table(text: str) -> tuple[dict[str, list[str]], list[str]]:
    """The table, room -> rooms it may include, and what is wrong with it."""
    may, mistakes = {}, []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        room, colon, names = line.partition(":")
        if not colon or room in may:
            mistakes.append(f"{TABLE}:{number}: a line is 'room: rooms it may include', once for each room")
        for name in names.split():
            if name not in may:
                mistakes.append(f"{TABLE}:{number}: {room} may only name rooms above it, {name} is none")
            elif {room.partition("/")[0], name.partition("/")[0]} == {"front", "rank"}:
                mistakes.append(f"{TABLE}:{number}: front and rank are two programs, {room} cannot include {name}")
        may[room] = names.split()
    return may, mistakes


def room_of(path: str, rooms) -> str | None:
    return next((room for room in sorted(rooms, key=len, reverse=True) if path == room or path.startswith(room + "/")), None)


def torch_mistake(room: str, suffix: str, target: str) -> str | None:
    if not room.startswith("rank/") or suffix in {".cu", ".cuh"}:
        return "LibTorch does not belong here"
    if "distributed/c10d" in target and not (room == "rank/comm" and suffix == ".cpp"):
        return "only comm's .cpp files include c10d"
    if target in {"<torch/torch.h>", "<torch/all.h>", "<ATen/ATen.h>"}:
        return "include the operators that are used, it compiles far faster"
    return None


def check_file(name: str, text: str, room: str, rooms, seen: set) -> list[str]:
    """What is wrong in one file; adds (room, other room) to `seen` for every room that it includes."""
    mistakes = []
    if not text.startswith("//"):
        mistakes.append(f"src/{name}:1: the first line must say the file's job in one sentence")
    for number, line in enumerate(text.splitlines(), 1):
        if JSON_READERS.search(line) and name != "base/json.cpp":
            mistakes.append(f"src/{name}:{number}: JSON is read by base::parse_json, which limits its depth")
        if PLAIN_LOCKS.search(line.split("//")[0]) and name != "base/mutex.h":
            mistakes.append(f"src/{name}:{number}: locks are base::Mutex, base::Lock and base::Condition, with what they guard told (base/mutex.h)")
        if RANDOM_DEVICE.search(line.split("//")[0]):
            mistakes.append(f"src/{name}:{number}: ids are base::fresh_id (base/hash/fresh.h): std::random_device would need a newer C library")
        if STREAM_ITERATORS.search(line):
            mistakes.append(f"src/{name}:{number}: files are read by base::read_text, those of processes by base::process_file (base/process.h): a stream's iterators throw where a process has ended")
        for what, pattern, owners in PROCESS_WIDE:
            if name not in owners and pattern.search(line.split("//")[0]):
                mistakes.append(f"src/{name}:{number}: {what} are the process's: give them an owner that puts them back (PROCESS_WIDE)")
        if room in SILENT and PRINTS.search(line.split("//")[0]):
            mistakes.append(f"src/{name}:{number}: {room} neither prints nor touches the terminal or signals")
        if not (found := INCLUDE.match(line)):
            continue
        target = found[1]
        if TORCH.match(target):
            if wrong := torch_mistake(room, pathlib.PurePath(name).suffix, target):
                mistakes.append(f"src/{name}:{number}: {target}: {wrong}")
            continue
        other = room_of(target.strip('<">'), rooms)
        if other is None or other in (room, "base"):
            continue
        seen.add((room, other))
        if other not in rooms[room]:
            mistakes.append(f"src/{name}:{number}: {room} may not include {other} ({TABLE})")
    return mistakes


def check(files: dict[str, str], table: str) -> list[str]:
    """files: path below src/ -> text."""
    may, mistakes = read_table(table)
    seen = set()
    for name, text in sorted(files.items()):
        room = room_of(name, may)
        if room is not None:
            mistakes += check_file(name, text, room, may, seen)
        elif name not in EVERYWHERE:
            mistakes.append(f"src/{name}: no room of {TABLE} has this folder")
    for room in may:
        if room_of(room, {room_of(name, may) for name in files} - {None}) is None:
            mistakes.append(f"{TABLE}: {room} has no files")
        mistakes += [f"{TABLE}: {room} may include {other}, but does not: take it out" for other in may[room] if (room, other) not in seen]
    return mistakes


def main() -> int:
    source = ROOT / "src"
    files = {path.relative_to(source).as_posix(): path.read_text() for path in source.rglob("*") if path.suffix in SOURCES}
    mistakes = check(files, (ROOT / TABLE).read_text())
    print("\n".join(mistakes) if mistakes else "include directions: good")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
