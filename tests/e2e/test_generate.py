"""generate and chat as people use them: one prompt, a file over ranks, a conversation, mistakes; samples and the best checkpoint of a run."""
import json
import signal
import subprocess
import time

import pytest

from support.lockstep import LOCKSTEP, ROOT, train, write_config
from support.text_models import WORDS, generate_file, lockstep, make_folder

GREEDY = ("--temperature", 0, "--device", "cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text") / "model"
    make_folder(folder)
    return folder


def words(text):
    return [word for word in text.split() if word in WORDS]


def test_a_prompt_is_continued_and_streaming_changes_nothing(model):
    streamed = lockstep("generate", "--model", model, "--prompt", "w10 w11", "--max-tokens", 9, *GREEDY)
    assert streamed.stdout.startswith("w10 w11 ")
    assert 1 <= len(words(streamed.stdout)) - 2 <= 9
    assert lockstep("generate", "--model", model, "--prompt", "w10 w11", "--max-tokens", 9, "--no-stream", *GREEDY).stdout == streamed.stdout


def test_a_stop_string_ends_the_text_before_it(model):
    whole = words(lockstep("generate", "--model", model, "--chat", "w10", "--max-tokens", 12, *GREEDY).stdout)
    stop = f"{whole[3]} {whole[4]}"  # spans two tokens
    cut = words(lockstep("generate", "--model", model, "--chat", "w10", "--max-tokens", 12, "--stop", "never", "--stop", stop, *GREEDY).stdout)
    text = " ".join(whole)
    assert cut == text[:text.index(stop)].split()


LINES = [{"prompt": " ".join(WORDS[(3 * i + j) % len(WORDS)] for j in range(1 + (5 * i) % 11)), "number": i} for i in range(13)]
LINES[4] = {"messages": [{"role": "user", "content": "w12 w13"}]}


@pytest.mark.parametrize("sampling", [("--temperature", 0), ("--temperature", 1.1, "--top-p", 0.9, "--seed", 3)], ids=["greedy", "drawn"])
def test_any_number_of_ranks_writes_the_same_file(tmp_path, model, sampling):
    files = []
    for ranks in (1, 2, 3):
        lines = generate_file(tmp_path, LINES, "--ranks", ranks, "--batch-size", 3, "--max-tokens", 12, *sampling, model=model, name=f"out{ranks}")
        files.append((tmp_path / f"out{ranks}.jsonl").read_bytes())
        assert [{key: line[key] for key in line if key not in ("completion", "finish")} for line in lines] == LINES
        assert all(line["finish"] in ("end", "length") for line in lines)
    assert files[0] == files[1] == files[2]
    assert [path.name for path in tmp_path.iterdir() if "parts" in path.name] == []


BROKEN = {
    "not JSON": ('{"prompt": "w7"}\n\n{"prompt": \n', "line 3: this is not JSON"),
    "no prompt": ('{"text": "w7"}\n', 'line 1: it needs either "prompt" or "messages"'),
    "not an object": ('{"prompt": "w7"}\n[1]\n', "line 2: a line is an object"),
    "empty": ("\n\n", "holds no prompt"),
    "too long": (json.dumps({"prompt": "w7"}) + "\n" + json.dumps({"prompt": " ".join(["w7"] * 128)}) + "\n", "line 2: a prompt of 128 tokens"),
    "no role": ('{"messages": [{"role": "user", "content": "w7"}, {"content": "w7"}]}\n', 'line 1: message 2 has no "role"'),
    "a role that is a number": ('{"prompt": "w7"}\n{"messages": [{"role": 1, "content": "w7"}]}\n', 'line 2: message 1 has no "role"'),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_line_is_named_and_nothing_is_written(tmp_path, model, name):
    text, said = BROKEN[name]
    (tmp_path / "in.jsonl").write_text(text)
    done = lockstep("generate", "--model", model, "--file", tmp_path / "in.jsonl", "--output", tmp_path / "out.jsonl", "--ranks", 2, "--device", "cpu",
                    code=4)
    assert said in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_ended_halfway_it_leaves_no_half_output(tmp_path, model):
    (tmp_path / "in.jsonl").write_text((json.dumps({"prompt": "w7"}) + "\n") * 4000)
    (tmp_path / "out.jsonl").write_text("from before\n")
    command = [LOCKSTEP, "generate", "--model", model, "--file", tmp_path / "in.jsonl", "--output", tmp_path / "out.jsonl", "--ranks", "2",
               "--batch-size", "2", "--max-tokens", "100", "--device", "cpu"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while not any(part.stat().st_size > 0 for part in tmp_path.glob("out.jsonl.parts-*/*.jsonl")):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) != 0
    assert (tmp_path / "out.jsonl").read_text() == "from before\n"
    assert list(tmp_path.glob("out.jsonl.parts-*")) == []


MISTAKES = [
    ([], "which model is not said"),
    (["--model", "nowhere", "--prompt", "a"], "there is no such folder"),
    (["--model", "MODEL"], "what to go on from is not said"),
    (["--model", "MODEL", "--run", "x", "--prompt", "a"], "two models"),
    (["--model", "MODEL", "--prompt", "a", "--chat", "b"], "excludes"),
    (["--model", "MODEL", "--file", "in.jsonl"], "requires --output"),
    (["--model", "MODEL", "--prompt", "a", "--ranks", "2"], "--ranks goes with --file"),
    (["--model", "MODEL", "--prompt", "a", "--temperature", "-1"], "--temperature"),
    (["--model", "MODEL", "--prompt", "a", "--top-p", "0"], "--top-p"),
    (["--model", "MODEL", "--prompt", "a", "--stop", ""], "--stop is empty"),
    (["--model", "MODEL", "--prompt", "a", "--checkpoint", "x"], "--checkpoint goes with --run"),
    (["--model", "MODEL", "--prompt", "a", "--adapter", "nowhere"], "not a PEFT folder"),
    (["--model", "MODEL", "--prompt", "a", "--load-in-4bit", "--load-in-8bit"], "exclude each other"),
    (["--model", "MODEL", "--prompt", "a", "--device", "tpu"], "not one of auto, cpu, cuda"),
]


@pytest.mark.parametrize("args, said", MISTAKES, ids=lambda value: None if isinstance(value, list) else value)
def test_mistakes_are_refused_at_once(model, args, said):
    done = lockstep("generate", *[str(model) if arg == "MODEL" else arg for arg in args], code=2)
    assert said in done.stderr


def test_a_model_without_a_template_cannot_chat(tmp_path):
    make_folder(tmp_path / "model", template=None)
    for verb in (["generate", "--chat", "w7"], ["chat"]):
        done = lockstep(verb[0], "--model", tmp_path / "model", *verb[1:], *GREEDY, code=2, stdin="w7\n")
        assert "no chat template" in done.stderr


def chat(model, *lines, args=()):
    return lockstep("chat", "--model", model, "--max-tokens", 10, *GREEDY, *args, stdin="".join(line + "\n" for line in lines))


def test_a_conversation_over_a_pipe(tmp_path, model):
    done = chat(model, "w10 w11", "w12", "/reset", "w10 w11", "/nonsense", "/exit", "w30")
    answers = done.stdout.splitlines()
    assert len(answers) == 3 and answers[0] == answers[2] and "/nonsense is not a command" in done.stderr
    once = lockstep("generate", "--model", model, "--chat", "w10 w11", "--max-tokens", 10, *GREEDY).stdout
    assert words(answers[0]) == words(once)
    # The second answer knows of the first turn.
    messages = [{"role": "user", "content": "w10 w11"}, {"role": "assistant", "content": answers[0]}, {"role": "user", "content": "w12"}]
    [line] = generate_file(tmp_path, [{"messages": messages}], "--max-tokens", 10, *GREEDY[:2], model=model)
    assert words(answers[1]) == words(line["completion"])


def test_a_system_message_is_heard(model):
    plain, flag = chat(model, "w20").stdout, chat(model, "w20", args=("--system", "w50 w51")).stdout
    assert plain != flag
    assert chat(model, "/system w50 w51", "w20").stdout == flag


def test_a_conversation_that_outgrows_the_model_says_so(model):
    done = chat(model, " ".join(["w9"] * 140), "w10 w11")
    assert "leaves no room" in done.stderr
    assert words(done.stdout) == words(chat(model, "w10 w11").stdout)


@pytest.mark.parametrize("held", [(), ("--shard", "--ranks", "2")], ids=["whole", "shards"])
def test_ctrl_c_stops_the_answer_and_the_conversation_goes_on(tmp_path, held):
    """The model never ends an answer by itself: no token is an end, and 50,000 of them would take minutes."""
    make_folder(tmp_path / "model", max_position_embeddings=60000)
    for name in ("generation_config.json", "tokenizer_config.json", "config.json"):
        path = tmp_path / "model" / name
        settings = {key: value for key, value in json.loads(path.read_text()).items() if not key.startswith("eos_token")}
        path.write_text(json.dumps(settings))
    command = [LOCKSTEP, "chat", "--model", tmp_path / "model", "--max-tokens", "50000", "--temperature", "1.5", "--device", "cpu", *held]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for word in ("w10", "w11"):
        process.stdin.write(f"{word}\n")
        process.stdin.flush()
        begun = "".join(process.stdout.read(1) for _ in range(600))  # some 200 tokens: far more than answers that end by themselves have
        process.send_signal(signal.SIGINT)
        answer = begun + process.stdout.readline()
        assert 100 < len(answer.split()) < 25000
    process.stdin.close()
    assert process.wait(60) == 0, process.stderr.read()


def samples_of(result):
    return [(line["step"], line["prompt"], line["text"]) for line in result.metrics() if line.get("event") == "sample"]


def test_samples_come_from_all_ranks_in_order(tmp_path):
    prompts = ["Once", "The cat", "A day", "Lily", "Tom"]
    config = write_config(tmp_path, model={"vocab_size": 1024}, data={"kind": "stories", "stories": 200}, trainer={"max_steps": 4},
                          monitor={"sample_tokens": 6, "sample_interval": 2, "sample_prompts": prompts})
    runs = [samples_of(train(tmp_path, f"run{ranks}", config, "--ranks", str(ranks))) for ranks in (1, 2, 3)]
    assert [(step, prompt) for step, prompt, _ in runs[0]] == [(step, prompt) for step in (2, 4) for prompt in prompts]
    assert all(text.startswith(prompt) for _, prompt, text in runs[0])
    assert runs[0] == runs[1] == runs[2]


def test_a_fine_tune_on_conversations_samples_answers_and_is_talked_to(tmp_path, model):
    lines = [{"messages": [{"role": "user", "content": f"w{7 + i % 50} w{8 + i % 40}"}, {"role": "assistant", "content": "w30 w31 w32"}]} for i in range(40)]
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({
        "model": {"path": str(model)}, "lora": {"enabled": True, "rank": 4}, "data": {"path": str(tmp_path / "chats.jsonl"), "seq_len": 32},
        "trainer": {"max_steps": 40, "global_batch_size": 8, "learning_rate": 0.03, "eval_interval": 20},
        "monitor": {"sample_prompts": ["w9 w10", "w40 w41", "w11 w12"], "sample_tokens": 8, "sample_temperature": 0}}))
    result = train(tmp_path, "run", config, "--ranks", "2")
    samples = [line for line in result.metrics() if line.get("event") == "sample"]
    assert [line["prompt"] for line in samples] == ["w9 w10", "w40 w41", "w11 w12"]
    assert words(samples[0]["text"]) == ["w30", "w31", "w32"], "it learned its only answer, and stops behind it"
    answer = lockstep("generate", "--run", result.folder, "--chat", "w9 w10", "--max-tokens", 8, *GREEDY).stdout
    assert words(answer) == ["w30", "w31", "w32"]
    accuracy = [line["eval_accuracy"] for line in result.metrics() if "eval_loss" in line]
    assert accuracy[-1] > 0.9


def test_the_best_checkpoint_stays(tmp_path):
    """A learning rate that soon ruins the model: the best evaluation is an early one."""
    config = write_config(tmp_path, trainer={"max_steps": 12, "eval_interval": 2, "save_interval": 3, "max_checkpoints": 1, "learning_rate": 0.3,
                                             "lr_schedule": "constant", "warmup_steps": 0, "max_grad_norm": 0})
    result = train(tmp_path, "run", config, "--ranks", "2")
    evaluations = {line["step"]: line for line in result.metrics() if "eval_loss" in line}
    best = min(evaluations, key=lambda step: evaluations[step]["eval_loss"])
    assert best < 12, "this test needs a model that gets worse"
    folders = sorted(path.name for path in (result.folder / "checkpoints").iterdir())
    assert folders == ["best", f"step-{best:06}", "step-000012"]
    link = result.folder / "checkpoints" / "best"
    assert link.is_symlink() and str(link.readlink()) == f"step-{best:06}"
    state = json.loads((result.checkpoint(12) / "state.json").read_text())
    assert state["best"] == {"step": best, "eval_loss": evaluations[best]["eval_loss"]}
    # Going on knows it: only a better evaluation takes its place.
    again = train(tmp_path, "run", config, "--ranks", "1", "--resume", "auto", "trainer.max_steps=16")
    evaluations = {line["step"]: line["eval_loss"] for line in again.metrics() if "eval_loss" in line}
    assert set(evaluations) == set(range(2, 17, 2))
    assert str(link.readlink()) == f"step-{min(evaluations, key=evaluations.get):06}"


def test_accuracy_and_perplexity_are_exact_on_any_number_of_ranks(tmp_path):
    config = write_config(tmp_path, trainer={"max_steps": 4, "eval_interval": 4})
    lines = [[line for line in train(tmp_path, f"run{ranks}", config, "--ranks", str(ranks)).metrics() if "eval_loss" in line][-1] for ranks in (1, 3)]
    for line in lines:
        assert line["eval_perplexity"] == pytest.approx(2.718281828459045 ** line["eval_loss"])
        correct = line["eval_accuracy"] * line["eval_tokens"]
        assert abs(correct - round(correct)) < 1e-6 and 0 <= line["eval_accuracy"] <= 1
    assert lines[0]["eval_accuracy"] == pytest.approx(lines[1]["eval_accuracy"], abs=2 / lines[0]["eval_tokens"])
