"""`lockstep bench` on a CPU, with tiny shapes: what it prints can be parsed and is plausible. No time is judged."""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from support.lockstep import LOCKSTEP, ROOT, train, write_config
from support.text_models import make_folder


def call(*args, timeout=120, env=None):
    return subprocess.run([str(LOCKSTEP), *map(str, args)], capture_output=True, text=True, cwd=ROOT, timeout=timeout, env={**os.environ, **(env or {})})


def lines_of(*args, **kwargs):
    done = call(*args, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def assert_spread(spread):
    assert 0 < spread["min"] <= spread["median"] <= spread["max"]


@pytest.fixture(scope="module")
def step():
    return lines_of("bench", "step", "--model", "nano", "--seq", 16, "--batch", 2, "--accumulation", 2, "--steps", 5, "--warm-up", 1, "--device", "cpu", "--json")[0]


def test_step_numbers_fit_together(step):
    for name in ("step_seconds", "micro_batch_seconds", "update_seconds"):
        assert_spread(step[name])
    assert len(step["raw_step_seconds"]) == 5 and min(step["raw_step_seconds"]) == step["step_seconds"]["min"]
    assert (step["seq_len"], step["batch_size"], step["accumulation"], step["dtype"]) == (16, 2, 2, "f32")
    assert step["tokens_per_second"] == pytest.approx(16 * 2 * 2 / step["step_seconds"]["median"])
    flops = step["tokens_per_second"] * sum(step["flops_per_token"].values())
    assert step["share_of_measured_matmul"] == pytest.approx(flops / step["ceilings"]["flops_per_second"])
    assert step["mfu"] is None  # no maker states a dense peak for a CPU
    assert step["peak_memory_bytes"] > 16 * step["parameters"]  # weights, gradients and two moments in f32
    assert step["host_peak_memory_bytes"] >= step["peak_memory_bytes"] and step["driver_memory_bytes"] == 0
    assert step["activations"] and not any("every_524288" in key for key in step)  # measured, never put together


@pytest.mark.parametrize("packing", ["false", "true"])
def test_a_step_of_records_counts_what_it_trains(tmp_path, packing):
    """The step of a run, over its own loader: targets of answers are counted, not positions."""
    make_folder(tmp_path / "model")
    with open(tmp_path / "chat.jsonl", "w") as file:
        for i in range(40):
            turns = [("user", "w1 " * (i % 7 + 1)), ("assistant", "w2 " * (i % 11 + 2))]
            file.write(json.dumps({"messages": [{"role": role, "content": text.strip()} for role, text in turns]}) + "\n")
    step = lines_of("bench", "step", "--model", "nano", "--seq", 32, "--batch", 2, "--steps", 3, "--warm-up", 1, "--device", "cpu", "--json", f"data.path={tmp_path / 'chat.jsonl'}",
                    f"data.tokenizer={tmp_path / 'model'}", f"data.packing={packing}", f"data.cache_dir={tmp_path / 'cache'}")[0]
    assert ("packs of 32" in step["data"]) == (packing == "true") and "40 records" in step["data"]
    assert 0 < step["tokens_per_step"] < 2 * 32
    assert step["tokens_per_second"] == pytest.approx(step["tokens_per_step"] / step["step_seconds"]["median"])


def test_step_says_what_it_measured(step):
    done = call("bench", "step", "--model", "models/nano.yaml", "--seq", 16, "--batch", 1, "--steps", 2, "--warm-up", 1, "--device", "cpu", "--dtype", "bf16")
    assert done.returncode == 0, done.stderr
    for words in ("nano, 9.8M parameters, bf16", "2 steps after 1", "update every 16 tokens", "activations", "in tensors", "of the host's", "MFU",
                  "operations per token", "frozen"):
        assert words in done.stdout, done.stdout


def test_every_kernel_has_a_rate_and_a_share():
    result = lines_of("bench", "kernels", "--model", "nano", "--seq", 16, "--batch", 2, "--device", "cpu", "--json")[0]
    names = [kernel["name"] for kernel in result["kernels"]]
    for name in ("rms_norm forward", "rms_norm backward", "rope forward", "rope backward", "swiglu forward", "swiglu backward", "embedding forward",
                 "embedding backward", "cross_entropy", "adamw", "sum_of_squares", "attention forward", "attention backward", "attention packed forward",
                 "attention packed backward", "matmul qkv forward", "matmul head weight gradient"):
        assert name in names
    assert result["ceilings"]["bytes_per_second"] > 0 and result["ceilings"]["flops_per_second"] > 0
    for kernel in result["kernels"]:
        assert_spread(kernel["seconds"])
        amount = kernel["bytes"] if kernel["limit"] == "bandwidth" else kernel["flops"]
        ceiling = result["ceilings"]["bytes_per_second" if kernel["limit"] == "bandwidth" else "flops_per_second"]
        assert amount > 0 and kernel["rate"] == pytest.approx(amount / kernel["seconds"]["median"])
        assert kernel["share"] == pytest.approx(kernel["rate"] / ceiling)
    qkv = next(kernel for kernel in result["kernels"] if kernel["name"] == "matmul qkv forward")
    assert qkv["flops"] == 2 * 32 * 384 * (384 + 2 * 2 * 64)
    attention = {kernel["name"]: kernel["flops"] for kernel in result["kernels"] if kernel["name"].startswith("attention")}
    assert attention["attention forward"] == 2 * 2 * 2 * 6 * 16 * 16 / 2 * 64  # 2 sequences, 6 heads of 64
    assert attention["attention packed forward"] == attention["attention forward"] / 4
    assert attention["attention packed backward"] == 2.5 * attention["attention packed forward"]


def test_step_shows_where_the_time_went(tmp_path):
    common = ["bench", "step", "--model", "nano", "--seq", 16, "--batch", 1, "--steps", 1, "--warm-up", 0, "--device", "cpu", "--profile", 2]
    result = lines_of(*common, "--json", env={"TMPDIR": str(tmp_path)})[0]
    assert result["profile"]["steps"] == 2
    trace = pathlib.Path(result["profile"]["trace"])
    assert trace.parent.parent == tmp_path and trace.parent.name.startswith("lockstep-profile-")
    names = [event["name"] for event in json.loads(trace.read_text())["traceEvents"] if "name" in event]
    blocks = sum(name == "block 0 forward" for name in names)
    assert blocks == 2, sorted(set(names))[:50]

    done = call(*common, "--profile-folder", tmp_path / "here")
    assert done.returncode == 0, done.stderr
    table = (tmp_path / "here" / "step.txt").read_text()
    assert table in done.stdout and str(tmp_path / "here" / "step.json") in done.stdout
    header, rest = table.split("\n\n", 1)
    assert header.startswith("2 steps on cpu: ")
    rows = [line.split(maxsplit=3) for line in rest.split("\n\nby range\n")[0].splitlines()[1:]]
    assert rows and sum(float(row[1].rstrip("%")) for row in rows) == pytest.approx(100, abs=0.1 * len(rows))
    assert any(row[3].startswith("aten::") for row in rows)


@pytest.mark.parametrize("backend", ["gloo", "cpu"])
def test_collectives_over_sizes(backend):
    results = lines_of("bench", "comm", "--ranks", 2, "--sync-backend", backend, "--sizes", "1K..16K", "--device", "cpu", "--json")
    assert [(r["operation"], r["bytes"]) for r in results] == [
        (operation, size) for size in (1024, 4096, 16384) for operation in ("all_reduce", "all_gather", "reduce_scatter", "broadcast")]
    share = {"all_reduce": 2 * 1 / 2, "all_gather": 1 / 2, "reduce_scatter": 1 / 2, "broadcast": 1}
    for result in results:
        assert result["ranks"] == 2 and result["calls"] >= 1 and result["seconds"] > 0
        assert result["algorithm_bytes_per_second"] == pytest.approx(result["bytes"] / result["seconds"])
        assert result["bus_bytes_per_second"] == pytest.approx(result["algorithm_bytes_per_second"] * share[result["operation"]])


def test_nothing_is_left_behind(tmp_path):
    done = call("bench", "comm", "--ranks", 2, "--sizes", "1K,4K", "--device", "cpu", env={"TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert "all_reduce" in done.stdout and "bus" in done.stdout
    assert "stories" not in done.stdout + done.stderr, "nothing is trained here"
    assert not list(tmp_path.glob("lockstep-bench-*"))


@pytest.mark.parametrize("arguments,words", [
    (["bench"], "subcommand"),
    (["bench", "step"], "--model"),
    (["bench", "step", "--model", "nano", "--steps", "0"], "`lockstep bench step --help`"),
    (["plan", "-f", "nano", "--shard", "full"], "--shard. It is a flag of `lockstep train`; write parallel.shard=full."),
    (["plan", "-f", "nano", "--lora", "model.dtype=bf16"], "write lora.enabled=true."),
    (["plan", "-f", "nano", "--batch_size=2"], "write trainer.batch_size=2."),
    (["bench", "step", "--model", "nano", "--shard", "full"], "write parallel.shard=full."),
    (["plan", "-f", "nano", "--sharrd", "full"], "The following argument was not expected: --sharrd."),
    (["bench", "step", "--model", "nanoo"], "Did you mean nano?"),
    (["bench", "step", "--model", "nano", "--dtype", "f8"], "--dtype"),
    (["bench", "step", "--model", "nano", "--steps", "0"], "--steps"),
    (["bench", "step", "--model", "nano", "--profile", "0"], "--profile"),
    (["bench", "comm", "--sizes", "1G..1K"], "--sizes"),
    (["bench", "comm", "--ranks", "1"], "--ranks"),
    (["plan"], "measured step"),
    (["plan", "model.dtype=bf16"], "Give one: -f FILE"),
    (["plan", "-f", "nano", "dtype"], "section.key=value"),
    (["plan", "-f", "nano", "--memory", "much"], "24GiB"),
    (["plan", "--step-seconds", "1"], "which model"),
    (["plan", "-f", "nano", "--step-seconds", "1", "--link", "nvlnk"], "Did you mean nvlink?"),
    (["plan", "--from", "models/nano.yaml"], "summary.json"),
])
def test_mistakes_are_named(arguments, words):
    done = call(*arguments)
    assert done.returncode == 2 and words in done.stderr, done.stdout + done.stderr


@pytest.fixture
def scripts(monkeypatch):
    """Scripts of bench/ find each other in their own folder."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))


def test_baseline_reads_our_model_files(scripts):
    """The yardstick trains the same shape: without torch's model code, the section is read as the file says."""
    from hf_baseline import model_shape
    shape = model_shape(ROOT / "models" / "llama-3.2-1b.yaml")
    assert (shape["hidden_size"], shape["kv_heads"], shape["vocab_size"], shape["norm_eps"], shape["tie_embeddings"]) == (2048, 8, 128256, 1e-5, True)
    assert model_shape(ROOT / "models" / "qwen2.5-0.5b.yaml")["qkv_bias"] is True


def summary_of(rate, mfu=0.5):
    memory = {"peak_bytes": 10 << 30, "driver_bytes": 12 << 30, "host_peak_bytes": 3 << 30}
    return {"tokens_per_second": rate, "mfu": mfu, "memory": memory, "activations": "norms recomputed", "data": "chat.jsonl, messages format, 9 records"}


def test_tables_hold_what_was_measured_and_where(scripts, tmp_path, monkeypatch):
    """Numbers, commits and machines come from the files; a row of another commit says so."""
    import tables
    about, other = ({"lockstep": f"lockstep 0.1.0 (commit {commit})", "device": "NVIDIA H200", "torch": "2.11.0", "driver": "580"} for commit in ("aaa", "bbb"))
    rows = {name: {"about": about, "at": "2026-11-15 22:00 UTC", "command": "lockstep train ...", "summary": summary_of(rate)}
            for name, rate in (("full-0.5b", 123456), ("lora-1b-packed", 70123), ("qlora-8b-offload", 12345))}
    rows["lora-8b"] = {**rows["full-0.5b"], "about": other}
    rows["full-7b"] = {"about": about, "at": "2026-11-15 22:00 UTC", "failed": "out of memory"}
    times = {"median": 2.04, "unprepared": 9.0, "all": [9.0, 2.0, 2.04, 2.1]}
    rows["first-step"] = {"about": about, "at": "2026-11-15 22:01 UTC", "first_step": {"chat": times, "random tokens": times}}
    (tmp_path / "gpu.json").write_text(json.dumps({"rows": rows}))
    sides = [{"who": "lockstep, f32 states", "tokens_per_second": 90, "peak_memory_bytes": 1 << 30},
             {"who": "Hugging Face, compile", "tokens_per_second": 100, "peak_memory_bytes": 1 << 30, "ratio": 0.9, "ratios": [0.89, 0.9, 0.91]},
             {"who": "Hugging Face, eager", "failed": "out of memory"}]
    comparison = {"model": "small", "what": "all weights", "batch": 32, "seq": 1024, "rounds": 3, "at": "2026-11-15", "command": "python3 bench/compare.py", "sides": sides,
                  "versions": {"lockstep": "lockstep 0.1.0 (commit aaa)", "torch": "2.11.0", "transformers": "5.17.0", "attention": "sdpa (cudnn)", "device": "NVIDIA H200"}}
    (tmp_path / "compare.json").write_text(json.dumps({"comparisons": [comparison]}))
    monkeypatch.setattr(tables, "MEASURED", tmp_path / "gpu.json")
    apart = lambda final: {"largest": 2 * final, "step": 7, "median": 0.001, "final": final}
    curves = [{"part": "tiny", "says": "two layers", "seed": seed, "loss": 4.5, "tested": apart(final), "halves": apart(-0.0003)} for seed, final in ((1, -0.002), (2, 0.004))]
    (tmp_path / "curves.json").write_text(json.dumps({"about": {**about, "at": "2026-11-15", "command": "python3 bench/fp8_curve.py"}, "under_test": "trainer.fp8=true", "rows": curves}))
    monkeypatch.setattr(tables, "COMPARED", tmp_path / "compare.json")
    monkeypatch.setattr(tables, "CURVES", tmp_path / "curves.json")
    made = tables.sections()
    assert "over 2 seeds" in made["speed"] and "two layers: -0.20% to +0.40% (0.03%). At no step of any run is it further away than 0.80%." in made["speed"]
    assert "| tiny | 2 | 4.500 | +0.80%, 7 | 0.10% | +0.40% | -0.06% | 0.10% | -0.03% |" in made["fp8-curve"] and "commit aaa" in made["fp8-curve"]
    assert "commit aaa" in made["gpu-rows"].splitlines()[0] and "| 123,500 | 50.0 % | 10.0 GiB | 12.0 GiB | 3.0 GiB |" in made["gpu-rows"]
    assert "| at least 50.0 % |" in made["gpu-rows"] and "Qwen2.5-7B" not in made["gpu-rows"]
    for page in ("gpu-rows", "speed"):  # the row of another commit bears a mark, which is explained below the table
        assert "| LoRA of Llama-3.1-8B (1) |" in made[page] and made[page].count(" (1) |") == 1
        assert "\n(1) measured 2026-11-15 22:00 UTC: lockstep 0.1.0 (commit bbb).\n" in made[page]
    assert "chat: 2.0 s (2.0 to 2.1; the very first time 9.0 s)" in made["gpu-first-step"]
    assert "0.90 times as fast (0.89 to 0.91)" in made["gpu-compare"] and "| Hugging Face, eager | out of memory | | |" in made["gpu-compare"]
    assert "(and 3.0 GiB of the host's)" in made["speed"] and "0.90 for small" in made["speed"]
    page = "a\n<!-- speed:begin made by -->\nold\n<!-- speed:end -->\nb\n"
    assert tables.filled(page, "speed", "new", "README.md") == "a\n<!-- speed:begin made by -->\nnew\n<!-- speed:end -->\nb\n"


def test_the_pages_hold_the_measured_tables():
    done = subprocess.run([sys.executable, ROOT / "bench" / "tables.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_comparisons_are_medians_of_rounds(scripts):
    from compare import OURS, side_of
    result = lambda rate: {"tokens_per_second": rate, "batch_size": 4, "peak_memory_bytes": rate, "raw_step_seconds": [1]}
    ours, theirs = [result(rate) for rate in (100, 90, 120)], [result(rate) for rate in (50, 100, 100)]
    side = side_of("Hugging Face, eager", theirs, ours)
    assert side["ratios"] == [2.0, 0.9, 1.2] and side["ratio"] == 1.2 and side["tokens_per_second"] == 100
    assert "ratio" not in side_of(OURS, ours, ours)
    assert side_of("Hugging Face, compile", [{"failed": "out of memory"}], ours) == {"who": "Hugging Face, compile", "failed": "out of memory"}


def test_whole_rounds_of_a_comparison_are_kept_if_it_is_cut_off(scripts, tmp_path, monkeypatch):
    import compare
    result = {"tokens_per_second": 100, "batch_size": 4, "peak_memory_bytes": 1, "raw_step_seconds": [1], "parameters": 5}
    left = [result] * 4  # a round and a third, then the GPU is gone

    def measure(*_):
        if not left:
            raise KeyboardInterrupt
        return left.pop(), ""

    monkeypatch.setattr(compare, "run", measure)
    path = tmp_path / "measured" / "compare.json"
    monkeypatch.setattr(sys, "argv", ["compare.py", "--model", "small", "--json", str(path), "--lockstep", "/bin/true"])
    with pytest.raises(KeyboardInterrupt):
        compare.main()
    (one,) = json.loads(path.read_text())["comparisons"]
    assert one["rounds"] == 1 and [len(side.get("ratios", [])) for side in one["sides"]] == [0, 1, 1]


def test_rows_are_commands_that_lockstep_takes(scripts, tmp_path):
    """Every row of the page, and the GPU suite's list: planned, not run."""
    from page import ROWS
    assert len({row.name for row in ROWS}) == len(ROWS)
    data = tmp_path / "chat.jsonl"
    data.write_text(json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}) + "\n")
    for row in ROWS:
        if row.kind != "train":
            continue
        place = {"CHAT": str(data), "TOKENIZER": str(tmp_path), "--fp8": "trainer.fp8=false"}  # a CPU has no FP8
        words = [place.get(word, word) for word in row.words("cpu")]
        done = call(*words, "--dry-run", "monitor.headless=true")
        assert done.returncode == 0, done.stderr
        plan = json.loads(done.stdout.splitlines()[-1])
        assert (plan["batch_size"], plan["gradient_accumulation"], plan["tokens_per_step"]) == (row.batch, row.accumulation, row.batch * row.seq * row.accumulation), row.name


def test_made_up_data_is_the_same_everywhere(scripts, tmp_path):
    from corpus import write_conversations, write_tokenizer
    for name in ("one", "two"):
        write_tokenizer(tmp_path / name, 5000)
        write_conversations(tmp_path / f"{name}.jsonl", 20)
    assert (tmp_path / "one" / "tokenizer.json").read_bytes() == (tmp_path / "two" / "tokenizer.json").read_bytes()
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
    shown = call("data", "inspect", "--tokenizer", tmp_path / "one", "--data", tmp_path / "one.jsonl", "--samples", 1, f"data.cache_dir={tmp_path / 'cache'}")
    assert shown.returncode == 0, shown.stderr


def test_curves_are_smoothed_and_compared(scripts):
    from fp8_curve import difference, smoothed
    assert smoothed([4, 2, 6, 1], 1) == [4, 2, 6, 1]
    assert smoothed([4, 2, 6, 1], 3) == [4, 3, 4, 3]
    apart = difference([10, 8, 4, 2, 1], [10, 8.4, 3, 2.2, 1.1])
    assert (apart.largest, apart.step) == (-0.25, 3)
    assert (apart.median, apart.final) == (pytest.approx(0.1), pytest.approx(0.1))


def test_python_sources_are_chosen_alike_everywhere(scripts, tmp_path):
    from python_text import MAX_FILE_BYTES, choose, source_files, source_folders
    first, second = tmp_path / "lib" / "python3", tmp_path / "lib" / "python3" / "site-packages"
    files = {first / "b.py": b"bb", first / "a" / "a.py": "aé".encode(), first / "copy.py": b"bb", first / "readme.txt": b"no source",
             first / "empty.py": b"", first / "latin.py": "é".encode("latin-1"), first / "nul.py": b"a\0", first / "table.py": b"1" * (MAX_FILE_BYTES + 1),
             second / "package" / "c.py": b"cccc", second / "z.py": b"zzzz"}
    for path, data in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (first / "dangling.py").symlink_to(first / "nowhere.py")
    (first / "folder.py").mkdir()
    assert second / "z.py" not in source_files(first) and source_files(second) == [second / "package" / "c.py", second / "z.py"]

    by_hash = lambda *texts: sorted(texts, key=lambda text: hashlib.sha256(text.encode()).digest())
    assert choose([first], 100) == (by_hash("aé", "bb"), 5)
    assert choose([first, second], 100) == (by_hash("aé", "bb", "cccc", "zzzz"), 13)
    assert choose([first, second], 12) == (by_hash("aé", "bb", "cccc"), 9)  # up to the first that does not fit
    assert choose([second, first], 4) == (["cccc"], 4)
    assert choose([first], 2) == ([], 0)

    assert source_folders()[0] == pathlib.Path(os.__file__).parent and len(set(source_folders())) == len(source_folders())


def test_a_tokenizer_learns_from_the_start_and_sets_the_vocabulary(scripts, tmp_path):
    from python_text import start_of, vocabulary_of
    assert start_of(["é", "bb", "cc"], 4) == ["é", "bb"]
    assert start_of(["long", "b"], 2) == ["long"]
    assert start_of(["a", "b"], 9) == ["a", "b"]
    for last, size in ((63, 64), (64, 128)):
        (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": 0, "b": last - 1}}, "added_tokens": [{"id": last}]}))
        assert vocabulary_of(tmp_path / "tokenizer.json") == size


def curve(tmp_path, *args):
    """bench/fp8_curve.py on a tiny model, with a setting under test that a CPU has."""
    shape = ["--model", "models/nano.yaml", "--batch", 4, "--seq", 32, "--steps", 20, "--smooth", 5, "--warm-up", 5]
    tiny = ["--hidden-size", 32, "--num-layers", 1, "model.num_heads=2", "model.kv_heads=1", "model.intermediate_size=64", "--device", "cpu"]
    command = [sys.executable, ROOT / "bench" / "fp8_curve.py", "--lockstep", LOCKSTEP, *shape, *args, "--", *tiny]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=ROOT, timeout=300, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert not list(tmp_path.glob("lockstep-curve-*"))
    return done


def test_curves_on_python_sources(tmp_path):
    done = curve(tmp_path, "--under-test", "trainer.recompute=blocks", "--text-bytes", 500000, "--vocab-size", 1000)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tokens of 1,024;" in done.stderr and "halves: 20 steps, loss" in done.stderr
    assert "trainer.recompute=blocks: largest difference +0.000% at step 1, median 0.000%, final +0.000%" in done.stdout
    assert "rounding alone: largest difference" in done.stdout


def test_curves_that_part(tmp_path):
    done = curve(tmp_path, "--under-test", "trainer.learning_rate=1e-6", "--data", "stories")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "trainer.learning_rate=1e-6 is beyond 1% of bf16" in done.stdout and "text:" not in done.stderr


def test_curves_that_cannot_be_made(tmp_path):
    done = curve(tmp_path, "--data", "nowhere.bin")
    assert done.returncode == 2 and "nowhere.bin does not exist" in done.stderr and not done.stdout


def test_curves_of_adapters_go_on_where_they_stopped(tmp_path):
    tiny = ["--hidden-size", 32, "--num-layers", 1, "model.num_heads=2", "model.kv_heads=1", "model.intermediate_size=64", "model.max_seq_len=32"]
    command = [sys.executable, ROOT / "bench" / "fp8_curve.py", "--lockstep", LOCKSTEP, "--only", "lora", "--seeds", 1, "--folder", tmp_path / "kept", "--device", "cpu",
               "--under-test", "trainer.recompute=blocks", "--steps", 8, "--batch", 4, "--seq", 32, "--warm-up", 2, "--smooth", 4, "--text-bytes", 300000,
               "--vocab-size", 600]
    curve = lambda *more: subprocess.run([str(word) for word in [*command, *more, "--", *tiny]], capture_output=True, text=True, cwd=ROOT, timeout=300)
    early = curve("--minutes", 0)
    assert early.returncode == 3 and "runs left to do" in early.stderr, early.stdout + early.stderr
    done = curve()
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.rmtree(next((tmp_path / "kept").glob("base-*")))  # finished runs need no base
    again = curve("--json", tmp_path / "table.json")
    told = json.loads((tmp_path / "table.json").read_text())
    assert [row["part"] for row in told["rows"]] == ["lora"] and told["about"]["command"].startswith("python3 bench/fp8_curve.py --only lora --seeds 1 --device cpu")
    assert "lora, the base: exporting it: 80 steps" in done.stderr and "lora, seed 1, halves: 8 steps, loss" in done.stderr and "text:" not in done.stderr
    assert "trainer.recompute=blocks: largest, at step" in done.stdout and "| lora | 1 |" in done.stdout and "in the mean of 1 seed (+0.00% to +0.00%)" in done.stdout
    assert (again.returncode, again.stdout) == (0, done.stdout) and "loss" not in again.stderr
    assert not list((tmp_path / "kept" / "runs").iterdir())


def test_no_script_hides_a_module_of_python():
    """A script's folder comes first where its neighbors look for modules."""
    scripts = {path.stem for path in (ROOT / "bench").glob("*.py")}
    assert scripts and not scripts & set(sys.stdlib_module_names)
