"""`lockstep data tokenize` and `data train-tokenizer`: what they write, against the Python packages, and what they refuse."""
import fcntl
import json
import os
import pathlib
import pty
import random
import struct
import subprocess
import sys
import termios

import numpy
import pyarrow
import pyarrow.parquet
import pytest
import tokenizers

from support.lockstep import LOCKSTEP, ROOT, train, write_config

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "parity"))
import text_tool  # noqa: E402


def data(*args, **options):
    return subprocess.run([str(LOCKSTEP), "data", *map(str, args)], capture_output=True, text=True, timeout=300, **options)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A tokenizer of each kind, and documents that hold all sorts of text."""
    root = tmp_path_factory.mktemp("data")
    for name in ("byte_level", "unigram", "wordpiece", "byte_fallback"):
        (root / name).mkdir()
        getattr(text_tool, name)().save(str(root / name / "tokenizer.json"))
    (root / "byte_level" / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<|endoftext|>"}, "bos_token": "<|endoftext|>"}))
    draws = random.Random(7)
    pages = text_tool.CORPUS
    documents = []
    for _ in range(400):
        page = draws.choice(pages)
        at = draws.randrange(len(page))
        documents.append(page[at : at + draws.randrange(1, 4000)])
    documents += ["", "👍🏽", "a\r\nb\u2028c", "x" * 5000, " " * 3000]
    with open(root / "documents.jsonl", "w", encoding="utf-8") as out:
        for number, document in enumerate(documents):
            out.write(json.dumps({"id": number, "text": document, "other": 1}, ensure_ascii=number % 2 == 0) + "\n")
            if number % 50 == 0:
                out.write("\n")
    text = ""
    while len(text) < 3e6:
        text += draws.choice(pages) + "\n\n"
    (root / "long.txt").write_text(text, encoding="utf-8")
    return root, documents


def tokens_of(path, kind="uint32"):
    return numpy.fromfile(path, kind).tolist()


@pytest.mark.parametrize("name", ["byte_level", "unigram", "wordpiece", "byte_fallback"])
def test_jsonl_gives_the_tokens_of_python(files, tmp_path, name):
    root, documents = files
    done = data("tokenize", "--tokenizer", root / name, "--input", root / "documents.jsonl", "--output", tmp_path / "t.bin", "--threads", 3)
    assert done.returncode == 0, done.stderr
    python = tokenizers.Tokenizer.from_file(str(root / name / "tokenizer.json"))
    expected = [token for encoding in python.encode_batch(documents, add_special_tokens=False) for token in encoding.ids]
    assert tokens_of(tmp_path / "t.bin") == expected
    assert f"{len(documents)} documents, {len(expected)} tokens of 32 bits" in done.stdout
    assert "MB/s" in done.stdout and done.stderr == ""
    assert [path.name for path in tmp_path.iterdir()] == ["t.bin"]


def test_parquet_gives_the_tokens_of_the_same_jsonl(files, tmp_path):
    root, documents = files
    rows = pyarrow.table({"id": range(len(documents)), "text": documents, "other": [None] * len(documents)})
    pyarrow.parquet.write_table(rows, tmp_path / "documents.parquet", row_group_size=70, compression="zstd")
    common = ("tokenize", "--tokenizer", root / "byte_level", "--append-eos")
    assert data(*common, "--input", root / "documents.jsonl", "--output", tmp_path / "json.bin").returncode == 0
    done = data(*common, "--input", tmp_path / "documents.parquet", "--output", tmp_path / "rows.bin", "--threads", 3)
    assert done.returncode == 0, done.stderr
    assert tokens_of(tmp_path / "rows.bin") == tokens_of(tmp_path / "json.bin")
    assert f"{len(documents)} documents" in done.stdout
    # Between other files, in their order.
    (tmp_path / "a.txt").write_text("a text")
    assert data(*common, "--input", tmp_path / "a.txt", tmp_path / "documents.parquet", tmp_path / "a.txt", "--output", tmp_path / "all.bin").returncode == 0
    assert data(*common, "--input", tmp_path / "a.txt", "--output", tmp_path / "one.bin").returncode == 0
    one = tokens_of(tmp_path / "one.bin")
    assert tokens_of(tmp_path / "all.bin") == one + tokens_of(tmp_path / "rows.bin") + one


def test_bad_rows_of_parquet_are_named_or_left_out(files, tmp_path):
    root, _ = files
    texts = ["good"] * 600 + [None] + ["good"] * 5
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "rows.parquet", row_group_size=100)
    (tmp_path / "broken.parquet").write_bytes((tmp_path / "rows.parquet").read_bytes()[:-40])
    common = ("tokenize", "--tokenizer", root / "byte_level", "--output", tmp_path / "t.bin")
    for args, message in [
        (("--input", tmp_path / "rows.parquet"), "rows.parquet, row 601: 'text' is not a text but null"),
        (("--input", tmp_path / "rows.parquet", "--field", "body"), "rows.parquet, row 1: there is no field 'body', only text"),
        (("--input", tmp_path / "broken.parquet"), "broken.parquet cannot be read as Parquet"),
    ]:
        done = data(*common, *args)
        assert (done.returncode, message in done.stderr) == (4, True), done.stderr
        assert not list(tmp_path.glob("t.bin*"))
    done = data(*common, "--input", tmp_path / "rows.parquet", "--skip-bad")
    assert done.returncode == 0 and "605 documents" in done.stdout and "left out 1 line" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["byte_level", "unigram", "wordpiece"])
def test_a_long_text_is_cut_without_changing_tokens(files, tmp_path, name):
    root, _ = files
    text = (root / "long.txt").read_bytes().decode()
    assert len(text) > 2.5e6  # several parts
    done = data("tokenize", "--tokenizer", root / name, "--input", root / "long.txt", "--output", tmp_path / "t.bin")
    assert done.returncode == 0, done.stderr
    python = tokenizers.Tokenizer.from_file(str(root / name / "tokenizer.json"))
    assert tokens_of(tmp_path / "t.bin") == python.encode(text, add_special_tokens=False).ids
    assert ": 1 document, " in done.stdout


def test_documents_keep_their_order_on_any_number_of_threads(files, tmp_path):
    root, _ = files
    results = []
    for threads in (1, 2, 7):
        path = tmp_path / f"{threads}.bin"
        done = data("tokenize", "--tokenizer", root / "byte_level", "--input", root / "documents.jsonl", root / "long.txt", root / "documents.jsonl",
                    "--output", path, "--threads", threads, "--append-eos", "--token-type", "u16")  # fmt: skip
        assert done.returncode == 0, done.stderr
        results.append(path.read_bytes())
    assert results[0] == results[1] == results[2]


def test_eos_bos_and_u16(files, tmp_path):
    root, _ = files
    (tmp_path / "a.jsonl").write_text('{"body": "one"}\n{"body": "two"}\n')
    (tmp_path / "b.txt").write_text("three\n\nfour\r\n")
    python = tokenizers.Tokenizer.from_file(str(root / "byte_level" / "tokenizer.json"))
    end = python.token_to_id("<|endoftext|>")

    def ids(text):
        return python.encode(text).ids

    common = ("tokenize", "--tokenizer", root / "byte_level", "--output", tmp_path / "t.bin", "--token-type", "u16", "--field", "body")
    assert data(*common, "--input", tmp_path / "a.jsonl", tmp_path / "b.txt", "--append-eos").returncode == 0
    assert tokens_of(tmp_path / "t.bin", "uint16") == [*ids("one"), end, *ids("two"), end, *ids("three\n\nfour\r\n"), end]
    done = data(*common, "--input", tmp_path / "b.txt", "--split-lines", "--prepend-bos", "--append-eos")
    assert tokens_of(tmp_path / "t.bin", "uint16") == [end, *ids("three"), end, end, *ids("four"), end]
    assert ": 2 documents, " in done.stdout


def test_a_run_trains_on_the_tokens(files, tmp_path):
    root, _ = files
    done = data("tokenize", "--tokenizer", root / "byte_level", "--input", root / "documents.jsonl", "--output", tmp_path / "t.bin", "--token-type", "u16")
    assert "data.token_type=u16" in done.stdout and "model.vocab_size of 600 or more" in done.stdout
    config = write_config(tmp_path, model={"vocab_size": 600}, data={"kind": "bin", "path": str(tmp_path / "t.bin"), "token_type": "u16"},
                          trainer={"max_steps": 2})  # fmt: skip
    assert len(train(tmp_path, "run", config, "--ranks", "1").losses()) == 2


BAD_LINES = {
    "broken": ('{"text": "a"}\n{"text": "b"\n', "bad.jsonl:2: not valid JSON"),
    "list": ('\n\n["text"]\n', "bad.jsonl:3: not a JSON object but array"),
    "missing": ('{"text": "a"}\n\n{"prompt": "b", "answer": "c"}\n', "bad.jsonl:3: there is no field 'text', only prompt, answer"),
    "number": ('{"text": 5}\n', "bad.jsonl:1: 'text' is not a text but number"),
    "utf8": (b'{"text": "a"}\n{"text": "\xff"}\n', "bad.jsonl:2: not valid JSON"),
}


@pytest.mark.parametrize("case", BAD_LINES)
def test_bad_lines_are_named_or_left_out(files, tmp_path, case):
    root, _ = files
    content, message = BAD_LINES[case]
    # A megabyte of good lines first: the line number must count over chunks.
    good = b'{"text": "good line, good words"}\n' * 60000 if case == "broken" else b""
    lines = good.count(b"\n")
    (tmp_path / "bad.jsonl").write_bytes(good + (content if isinstance(content, bytes) else content.encode()) + b'{"text": "end"}\n')
    common = ("tokenize", "--tokenizer", root / "byte_level", "--input", tmp_path / "bad.jsonl", "--output", tmp_path / "t.bin")
    done = data(*common)
    assert done.returncode == 4
    assert message.replace(":2:", f":{lines + 2}:") in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.jsonl"]
    done = data(*common, "--skip-bad")
    assert done.returncode == 0, done.stderr
    assert "left out 1 line that could not be read" in done.stdout


def test_other_mistakes(files, tmp_path):
    root, _ = files
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "latin.txt").write_bytes("schön ".encode() * 400000 + b"sch\xf6n")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "a.json").write_text("[]")
    ours = ("--tokenizer", root / "byte_level", "--output", tmp_path / "t.bin")
    cases = [
        (("--input", tmp_path / "none.txt", *ours), 4, "none.txt does not exist"),
        (("--input", tmp_path, *ours), 4, "is a folder"),
        (("--input", tmp_path / "a.json", *ours), 4, ".json files are not read here"),
        (("--input", tmp_path / "empty.txt", *ours), 4, "no text"),
        (("--input", tmp_path / "latin.txt", *ours), 4, f"not UTF-8 at byte {len('schön '.encode()) * 400000 + 3}"),
        (("--input", tmp_path / "a.txt", "--tokenizer", tmp_path, "--output", tmp_path / "t.bin"), 4, "tokenizer.json does not exist"),
        (("--input", tmp_path / "a.txt", *ours, "--token-type", "u8"), 2, "neither u16 nor u32"),
        (("--input", tmp_path / "a.txt", "--tokenizer", root / "unigram", "--output", tmp_path / "t.bin", "--append-eos"), 2, "eos token"),
        (("--input", tmp_path / "a.txt", *ours, "--colour"), 2, "--colour"),
    ]  # fmt: skip
    for args, code, message in cases:
        done = data("tokenize", *args)
        assert (done.returncode, message in done.stderr) == (code, True), (args, done.stderr)
        assert not list(tmp_path.glob("t.bin*"))
    assert "Did you mean tokenize?" in data("tokenise").stderr
    assert data().returncode == 2 and "train-tokenizer" in data("--help").stdout


def test_the_bar_is_for_terminals_alone(files, tmp_path):
    root, _ = files
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [str(LOCKSTEP), "data", "tokenize", "--tokenizer", root / "byte_level", "--input", root / "long.txt", "--output", tmp_path / "t.bin"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=inner, timeout=120)
    os.close(inner)
    shown = os.read(outer, 65536).decode()
    os.close(outer)
    assert done.returncode == 0 and "%" in shown and "MB/s" in shown and "[#" in shown.replace("[.", "[#")
    assert b"\r" not in done.stdout and max(len(line) for line in shown.split("\r")) < 90


@pytest.fixture(scope="module")
def trained(files, tmp_path_factory):
    root, _ = files
    folder = tmp_path_factory.mktemp("trained") / "tokenizer"
    done = data("train-tokenizer", "--input", root / "documents.jsonl", ROOT / "docs" / "data.md", "--vocab-size", 700, "--output", folder,
                "--special", "<|endoftext|>", "<|pad|>", "--chat-template", "chatml")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "700 tokens from" in done.stdout
    return folder


def test_transformers_loads_a_trained_tokenizer(trained):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(trained)
    assert len(tokenizer) == 700
    assert tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|pad|>", "<|im_start|>", "<|im_end|>"]) == [0, 1, 2, 3]
    assert tokenizer.eos_token == "<|im_end|>"
    for text in ("Plain text, twice: plain text.", "👍🏽 日本語 \r\n\t  ", "<|im_start|>user"):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text
    assert len(tokenizer.encode("the number of ranks", add_special_tokens=False)) < 12
    done = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}], return_dict=True,
                                         return_assistant_tokens_mask=True)  # fmt: skip
    answer = [token for token, bit in zip(done["input_ids"], done["assistant_masks"]) if bit]
    assert tokenizer.decode(answer) == "Yes<|im_end|>"


def test_training_gives_the_tokens_of_python(files, tmp_path):
    root, documents = files
    done = data("train-tokenizer", "--input", root / "documents.jsonl", "--vocab-size", 500, "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    python = tokenizers.Tokenizer(tokenizers.models.BPE())
    python.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=500, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False,
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())  # fmt: skip
    python.train_from_iterator(documents, trainer)
    assert tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json")).get_vocab() == python.get_vocab()


def test_what_a_tokenizer_cannot_be_trained_from(files, tmp_path):
    root, _ = files
    (tmp_path / "small.txt").write_text("just this")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "bad.jinja").write_text("{% for x in %}")
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\nnonsense\n')
    out = ("--output", tmp_path / "made")
    cases = [
        (("--input", tmp_path / "small.txt", "--vocab-size", 100, *out), 2, "--vocab-size 100 cannot be"),
        (("--input", tmp_path / "empty.txt", "--vocab-size", 300, *out), 4, "no text"),
        (("--input", tmp_path / "bad.jsonl", "--vocab-size", 300, *out), 4, "bad.jsonl:2: not valid JSON"),
        (("--input", tmp_path / "small.txt", "--vocab-size", 300, *out, "--chat-template", tmp_path / "bad.jinja"), 4, "bad.jinja is no chat template"),
        (("--input", tmp_path / "small.txt", "--vocab-size", 300, *out, "--special", "<a>", "<a>"), 2, "<a> twice"),
    ]  # fmt: skip
    for args, code, message in cases:
        done = data("train-tokenizer", *args)
        assert (done.returncode, message in done.stderr) == (code, True), (args, done.stderr)
        assert not (tmp_path / "made").exists()
    done = data("train-tokenizer", "--input", tmp_path / "small.txt", "--vocab-size", 1000, *out)
    assert done.returncode == 0 and "fewer than --vocab-size 1000" in done.stdout


def test_a_tokenizer_from_conversations_is_that_of_what_they_say(tmp_path):
    talks = [[f"question {i % 7}?", f"answer {i} and so on"] for i in range(50)]
    files = {
        "text": [{"text": "".join(said + "\n" for said in talk)} for talk in talks],
        "messages": [{"messages": [{"role": "user", "content": talk[0]}, {"role": "assistant", "content": talk[1]}]} for talk in talks],
        "conversations": [{"conversations": [{"from": "human", "value": talk[0]}, {"from": "gpt", "value": talk[1]}]} for talk in talks],
    }
    for field, records in files.items():
        (tmp_path / f"{field}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        done = data("train-tokenizer", "--input", tmp_path / f"{field}.jsonl", "--field", field, "--vocab-size", 300, "--output", tmp_path / field)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / field / "tokenizer.json").read_text() == (tmp_path / "text" / "tokenizer.json").read_text()
    (tmp_path / "bad.jsonl").write_text('{"messages": [{"role": "user", "content": 3}]}\n')
    done = data("train-tokenizer", "--input", tmp_path / "bad.jsonl", "--field", "messages", "--vocab-size", 300, "--output", tmp_path / "bad")
    assert done.returncode == 4 and "bad.jsonl:1: 'messages' is not a text but array" in done.stderr
