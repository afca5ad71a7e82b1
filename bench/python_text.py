"""The Python sources of the running interpreter as a corpus: real text that every machine has, as tokens that lockstep makes.

The standard library comes first, then installed packages, until there are bytes enough. Which files these are depends on the machine alone, and
so does their order: by a hash of what they hold, so that the files of a package do not lie together and copies of a file count once.
"""
import hashlib
import json
import pathlib
import subprocess
import sys
import sysconfig

PACKAGES = {"site-packages", "dist-packages"}
MAX_FILE_BYTES = 512 << 10  # longer ones are tables that a program wrote
TOKENIZER_BYTES = 4_000_000  # a tokenizer of 16,384 tokens needs no more, and takes a second
ROUND_VOCABULARY_TO = 64


def source_folders():
    """The standard library, then the folders of packages in the order in which Python looks into them."""
    folders = [sysconfig.get_paths()["stdlib"], *(entry for entry in sys.path if pathlib.Path(entry).name in PACKAGES)]
    return [pathlib.Path(folder) for folder in dict.fromkeys(folders)]


def source_files(folder):
    """The sources below a folder by path, without packages that are installed inside it, as they are inside the standard library's."""
    return [path for path in sorted(folder.rglob("*.py")) if not PACKAGES & set(path.relative_to(folder).parts)]


def read_source(path):
    """The bytes of a file, or None for one that is not text: unreadable, empty, too long, with NUL bytes, not UTF-8."""
    try:
        if not path.is_file() or not 0 < path.stat().st_size <= MAX_FILE_BYTES:
            return None
        data = path.read_bytes()
        data.decode()
    except (OSError, UnicodeDecodeError):
        return None
    return None if b"\0" in data else data


def choose(folders, limit):
    """Texts of at most `limit` bytes together, and their bytes: folder by folder and path by path up to the first that does not fit, then by hash."""
    chosen, size = {}, 0
    for path in (path for folder in folders for path in source_files(folder)):
        data = read_source(path)
        if data is None or (key := hashlib.sha256(data).digest()) in chosen:
            continue
        if size + len(data) > limit:
            break
        chosen[key] = data.decode()
        size += len(data)
    return [chosen[key] for key in sorted(chosen)], size


def start_of(texts, limit):
    """The first texts that have together at most `limit` bytes, and at least one."""
    size = 0
    for count, text in enumerate(texts):
        size += len(text.encode())
        if size > limit:
            return texts[:max(count, 1)]
    return texts


def write_records(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def vocabulary_of(tokenizer):
    """What model.vocab_size has to be for a tokenizer.json: its tokens, rounded up to what is kind to the hardware."""
    content = json.loads(tokenizer.read_text())
    last = max([*content["model"]["vocab"].values(), *(token["id"] for token in content["added_tokens"])])
    return -(-(last + 1) // ROUND_VOCABULARY_TO) * ROUND_VOCABULARY_TO


class Failed(Exception):
    """A command did not do its work; the text is for people."""


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr}")


def make_tokens(lockstep, texts, folder, vocabulary):
    """Learns a tokenizer from the first texts and writes the tokens of all. The .bin file (u32), and the model's vocabulary."""
    sample = write_records(folder / "sample.jsonl", start_of(texts, TOKENIZER_BYTES))
    everything = write_records(folder / "text.jsonl", texts)
    tokenizer, tokens = folder / "tokenizer", folder / "tokens.bin"
    run(lockstep, "data", "train-tokenizer", "--input", sample, "--vocab-size", vocabulary, "--output", tokenizer)
    run(lockstep, "data", "tokenize", "--tokenizer", tokenizer, "--input", everything, "--append-eos", "--output", tokens)
    return tokens, vocabulary_of(tokenizer / "tokenizer.json")
