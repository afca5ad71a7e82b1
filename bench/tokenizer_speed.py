#!/usr/bin/env python3
"""How fast `lockstep data tokenize` is against the Python package on the same cores: .deps-test/bin/python bench/tokenizer_speed.py [--megabytes 20].

Ours is the whole command (start, reading, JSON, encoding, writing); Python's are encode_batch and encode_batch_fast (which leaves
out where tokens stand) alone, with the texts already in memory. They run
in turn, several times, and the best time counts. The tokens are compared too."""
import argparse
import json
import os
import pathlib
import random
import resource
import subprocess
import tempfile
import time

import numpy
import tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[1]
LOCKSTEP = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", ROOT / "build")) / "bin" / "lockstep"


def make_documents(megabytes):
    draws = random.Random(1)
    pages = [path.read_text() for folder, ending in (("docs", "md"), ("src", "cpp")) for path in sorted((ROOT / folder).rglob(f"*.{ending}"))]
    documents, size = [], 0
    while size < megabytes * 1e6:
        page = draws.choice(pages)
        at = draws.randrange(len(page))
        documents.append(page[at : at + draws.randrange(200, 6000)])
        size += len(documents[-1].encode())
    return documents, size


def timed(work, who):
    """Wall and processor seconds, and what `work` gave."""
    before, start = resource.getrusage(who), time.monotonic()
    result = work()
    after = resource.getrusage(who)
    return time.monotonic() - start, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, result


def measure(name, folder, documents, size, repeats, work):
    python = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    source, output = work / "documents.jsonl", work / "tokens.bin"
    command = [LOCKSTEP, "data", "tokenize", "--tokenizer", folder, "--input", source, "--output", output]
    ways = {
        "lockstep data tokenize": (lambda: subprocess.run(command, check=True, capture_output=True), resource.RUSAGE_CHILDREN),
        "python encode_batch": (lambda: python.encode_batch(documents, add_special_tokens=False), resource.RUSAGE_SELF),
        "python encode_batch_fast": (lambda: python.encode_batch_fast(documents, add_special_tokens=False), resource.RUSAGE_SELF),
    }
    times = {way: [] for way in ways}
    for _ in range(repeats):
        for way, (run, who) in ways.items():
            *seconds, result = timed(run, who)
            times[way].append(seconds)
            if way == "python encode_batch":
                expected = numpy.concatenate([numpy.array(encoding.ids, "uint32") for encoding in result])
            del result
    assert (numpy.fromfile(output, "uint32") == expected).all(), "the tokens differ"
    ours = min(wall for wall, _ in times["lockstep data tokenize"])
    for way, seconds in times.items():
        wall, processor = (min(column) for column in zip(*seconds))
        ratio = "" if way.startswith("lockstep") else f"   ours is {wall / ours:.2f} times as fast"
        print(f"{name:<10} {way:<26} {size / 1e6 / wall:8.1f} MB/s   {size / 1e6 / processor:8.2f} MB a processor second{ratio}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--megabytes", type=float, default=20)
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--tokenizer", action="append", help="folders; those of tools/setup-tokenizers.sh if left out")
    wish = arguments.parse_args()
    folders = [pathlib.Path(path) for path in wish.tokenizer or sorted((ROOT / ".deps-test" / "tokenizers").glob("*"))]
    documents, size = make_documents(wish.megabytes)
    print(f"{len(documents)} documents, {size / 1e6:.1f} MB, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        (work / "documents.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
        for folder in folders:
            measure(folder.name, folder, documents, size, wish.repeats, work)


if __name__ == "__main__":
    main()
