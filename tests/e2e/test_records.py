"""Records end to end: a model folder and a JSONL file train on any number of ranks; bad data ends with its line, never with a hang."""
import json
import os
import subprocess

import pytest

from support.chat_model import write_model
from support.lockstep import LOCKSTEP, ROOT, Result
from support.network import free_port


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "tiny-chat")


def chats(count: int) -> str:
    lines = []
    for i in range(count):
        turns = [{"role": "user", "content": f"What is {i} plus {i % 7}?"}, {"role": "assistant", "content": f"It is {i + i % 7}." + " Sure." * (i % 5)}]
        lines.append(json.dumps({"messages": turns * (1 + i % 3)}))
    return "\n".join(lines) + "\n"


def start(tmp_path, model, data, *args, name="run", timeout=120):
    command = [str(LOCKSTEP), "train", "--model", str(model), "--data", str(data), "--output", str(tmp_path), "--name", name, "--device", "cpu",
               "--ranks", "2", f"data.cache_dir={tmp_path / 'cache'}", "data.seq_len=240", "trainer.global_batch_size=12", "trainer.log_interval=1",
               "trainer.learning_rate=0.01", "monitor.sample_tokens=0", "checkpoint.export_at_end=false", "model.dtype=f32", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=ROOT, env=os.environ)
    return Result(done.returncode, done.stdout, done.stderr, tmp_path / name)


def write(tmp_path, text, name="chat.jsonl"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_chat_file_trains_and_ranks_do_not_matter(tmp_path, model):
    data = write(tmp_path, chats(60))
    one = start(tmp_path, model, data, "--ranks", "1", "trainer.max_steps=8", name="one")
    assert one.code == 0, one.text
    assert "60 records" in one.out and "tokenized and cached" in one.out
    assert one.losses()[-1] < one.losses()[0]
    for ranks in ("2", "3"):
        many = start(tmp_path, model, data, "--ranks", ranks, "trainer.max_steps=8", name=f"ranks{ranks}")
        assert many.code == 0, many.text
        assert "; cached" in many.out
        assert many.losses() == pytest.approx(one.losses(), rel=2e-5)
        assert [line["eval_loss"] for line in many.metrics() if "eval_loss" in line] == pytest.approx(
            [line["eval_loss"] for line in one.metrics() if "eval_loss" in line], rel=2e-5)


def parses(run) -> list[str]:
    """Who parsed a tokenizer, launcher and ranks alike."""
    logs = [run.err] + [path.read_text() for path in sorted((run.folder / "ranks").glob("*.log"))]
    return [line for log in logs for line in log.splitlines() if "info: parsed" in line and "tokenizer.json" in line]


def test_a_tokenizer_is_parsed_once_or_not_at_all(tmp_path, model, monkeypatch):
    """Parsing one of 128 thousand tokens takes most of a second, so what was tokenized before is found without it."""
    monkeypatch.setenv("LOCKSTEP_TRACE", "1")
    data = write(tmp_path, chats(24))
    short = ("trainer.max_steps=2", "--packing")
    assert len(parses(start(tmp_path, model, data, *short, name="first"))) == 1  # by the launcher, which tokenizes
    prepared = start(tmp_path, model, data, *short, name="prepared")
    assert prepared.code == 0 and "; cached" in prepared.out
    assert parses(prepared) == []
    with_samples = start(tmp_path, model, data, *short, "monitor.sample_tokens=4", name="samples")
    assert with_samples.code == 0, with_samples.text
    assert ["rank 0 " in line for line in parses(with_samples)] == [True]  # by the rank that writes, beside its first steps
    assert [line["text"] for line in with_samples.metrics() if line.get("event") == "sample"]


def test_a_broken_tokenizer_ends_a_run_at_its_start(tmp_path, model):
    """Token files need no tokenizer; samples do, and nobody wants to learn that after the last step."""
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "tokenizer.json").write_text('{"model": {"type": "BPE"}}')
    (broken / "tokenizer_config.json").write_text((model / "tokenizer_config.json").read_text())
    done = start(tmp_path, model, write(tmp_path, chats(8)), f"data.tokenizer={broken}", name="records")
    assert done.code == 4 and "this is no tokenizer that can be used" in done.err, done.text
    (tmp_path / "tokens.bin").write_bytes(b"".join(number.to_bytes(4, "little") for number in range(200)) * 40)
    done = start(tmp_path, model, tmp_path / "tokens.bin", f"data.tokenizer={broken}", "monitor.sample_tokens=4", "trainer.max_steps=2000", "data.seq_len=64", name="tokens")
    assert done.code == 4 and "this is no tokenizer that can be used" in done.text, done.text
    assert max(done.steps(), default=0) < 1000


def test_packed_and_unpacked_give_the_same_loss(tmp_path, model):
    """One step over all records: the sum over trained tokens is the same, however they share rows."""
    data = write(tmp_path, chats(24))
    whole = ("trainer.max_steps=1", "data.validation_fraction=0", "trainer.global_batch_size=24")
    plain = start(tmp_path, model, data, *whole, name="plain")
    packed = start(tmp_path, model, data, *whole, "--packing", name="packed")
    handed_out = start(tmp_path, model, data, *whole, "--packing", "--no-distributed-data-loading", name="handed")
    for result in (plain, packed, handed_out):
        assert result.code == 0, result.text
    assert packed.losses() == pytest.approx(plain.losses(), rel=1e-5)
    assert handed_out.losses() == pytest.approx(packed.losses(), rel=1e-6)
    assert packed.steps()[1]["tokens"] == plain.steps()[1]["tokens"]
    assert packed.steps()[1]["grad_norm"] == pytest.approx(plain.steps()[1]["grad_norm"], rel=1e-4)


def test_a_packed_run_resumes_on_another_number_of_ranks(tmp_path, model):
    data = write(tmp_path, chats(90))
    settings = ("--packing", "trainer.max_steps=8", "trainer.global_batch_size=6", "trainer.lr_schedule=constant")
    whole = start(tmp_path, model, data, *settings, name="whole")
    first = start(tmp_path, model, data, *settings, "trainer.max_steps=3", name="part")
    second = start(tmp_path, model, data, *settings, "--ranks", "3", "--resume", "auto", name="part")
    assert whole.code == first.code == second.code == 0, second.text
    assert second.losses() == pytest.approx(whole.losses(), rel=2e-5)


def test_text_is_read_with_the_models_tokenizer(tmp_path, model):
    data = write(tmp_path, "All work and no play makes a dull day.\n" * 400, "book.txt")
    result = start(tmp_path, model, data, "trainer.max_steps=3")
    assert result.code == 0, result.text
    assert "15.6k tokens" in result.out
    assert result.losses()[-1] < result.losses()[0]


GOOD = chats(20)
BAD = {
    "broken JSON": (GOOD + '{"messages": [{"role": "user"\n', "chat.jsonl:21: the record is broken JSON at column"),
    "missing field": (GOOD + '{"chat": []}\n', "chat.jsonl:21: the record has no field 'messages' (it has chat)"),
    "mixed formats": (GOOD + '{"prompt": "a", "completion": "b"}\n', "it looks like prompt_completion, but the records are read as messages"),
    "not UTF-8": (GOOD.encode() + b'{"messages": [{"role": "user", "content": "caf\xe9"}]}\n', "chat.jsonl:21: the record is not UTF-8: byte 0xe9 at column 47"),
    "refused by the template": (GOOD + '{"messages": [{"role": "assistant", "content": null, "tool_calls": []}]}\n', "chat.jsonl:21: the record"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_records_are_named_or_counted(tmp_path, model, case):
    text, says = BAD[case]
    data = write(tmp_path, text)
    stopped = start(tmp_path, model, data, "trainer.max_steps=1")
    assert stopped.code == 4 and says in stopped.err, stopped.text
    assert "data.bad_records=skip" in stopped.err
    skipped = start(tmp_path, model, data, "trainer.max_steps=1", "data.bad_records=skip")
    assert skipped.code == 0 and "1 unreadable and skipped" in skipped.out, skipped.text
    assert "chat.jsonl:21" in skipped.out


def test_an_empty_file_is_an_error(tmp_path, model):
    result = start(tmp_path, model, write(tmp_path, ""))
    assert result.code == 4 and "chat.jsonl has no records: it is empty" in result.err, result.text


def test_a_line_of_ten_megabytes_is_cut_and_counted(tmp_path, model):
    long = json.dumps({"messages": [{"role": "user", "content": "Say x."}, {"role": "assistant", "content": "x" * (10 << 20)}]})
    result = start(tmp_path, model, write(tmp_path, GOOD + long + "\n"), "trainer.max_steps=1")
    assert result.code == 0 and "1 cut" in result.out, result.text


def test_what_happens_to_long_records_can_be_chosen(tmp_path, model):
    long = json.dumps({"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "x" * 500}]})
    data = write(tmp_path, GOOD + long + "\n")
    stopped = start(tmp_path, model, data, "data.too_long=error")
    assert stopped.code == 4 and "chat.jsonl:21: the record has" in stopped.err and "data.seq_len=240" in stopped.err, stopped.text
    skipped = start(tmp_path, model, data, "data.too_long=skip", "trainer.max_steps=1")
    assert skipped.code == 0 and "1 too long and skipped" in skipped.out, skipped.text


def test_a_foreign_launcher_tokenizes_once(tmp_path, model):
    """Two ranks started by hand, as torchrun does: one prepares, the other waits or finds it done; nobody hangs."""
    data = write(tmp_path, chats(3000))
    base = {**os.environ, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = [str(LOCKSTEP), "train", "--model", str(model), "--data", str(data), "--output", str(tmp_path), "--name", "run", "--device", "cpu",
               f"data.cache_dir={tmp_path / 'cache'}", "data.seq_len=192", "trainer.global_batch_size=4", "trainer.max_steps=2", "trainer.log_interval=1",
               "monitor.sample_tokens=0", "checkpoint.export_at_end=false"]
    ranks = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
                              env={**base, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(2)]
    outputs = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    assert len(list((tmp_path / "cache" / "data").glob("*.lsd"))) == 1


def test_inspect_shows_what_is_trained(tmp_path, model):
    lines = chats(10) + chats(1) + json.dumps({"messages": [{"role": "user", "content": "no answer"}]}) + "\n"
    data = write(tmp_path, lines)
    command = [str(LOCKSTEP), "data", "inspect", "--model", str(model), "--data", str(data), f"data.cache_dir={tmp_path / 'cache'}"]
    done = subprocess.run([*command, "--samples", "1"], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "12 records, messages format" in done.stdout
    assert "1 with nothing to train" in done.stdout
    assert "chat.jsonl:11 is the same as" in done.stdout
    assert "<|im_start|>assistant\n[[It is 0.<|im_end|>]]\n" in done.stdout
    made = json.loads(subprocess.run([*command, "--json", "--samples", "2"], capture_output=True, text=True, cwd=ROOT, timeout=60, check=True).stdout)
    assert made["records"] == 12 and made["untrained"] == 1 and made["duplicates"] == 1
    assert sum(bucket["samples"] for bucket in made["lengths"]["histogram"]) == made["samples"] == 11
    assert 0 < made["packing"]["fill_unpacked"] < made["packing"]["fill"] <= 1
    trained = [token["spelled"] for token in made["shown"][0]["tokens"] if token["trained"]]
    assert trained[-1] == "<|im_end|>"


def test_records_without_a_tokenizer_say_what_is_missing(tmp_path):
    done = subprocess.run([str(LOCKSTEP), "train", "--data", str(write(tmp_path, GOOD)), "--device", "cpu", "--output", str(tmp_path)],
                          capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 4 and "need a tokenizer" in done.stderr and "--model" in done.stderr
