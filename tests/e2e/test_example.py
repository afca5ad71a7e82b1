"""examples/chat-lora/run.sh as it stands: the answers change from plain to the keeper's, also for questions he was never taught."""
import json
import os
import subprocess

from support.lockstep import LOCKSTEP, ROOT

EXAMPLE = ROOT / "examples" / "chat-lora"
SIGNATURE = "Keep the light burning!"


def answers(said, title):
    """Question -> answer of one part of what run.sh prints."""
    lines = [line for line in said.split(f"== {title}\n")[1].split("\n\n==")[0].splitlines() if line]
    return {question.removeprefix("> "): answer for question, answer in zip(lines[::2], lines[1::2], strict=True)}


def taught(name):
    records = [json.loads(line)["messages"] for line in (EXAMPLE / name).read_text().splitlines()]
    return {question["content"]: answer["content"] for question, answer in records}


def test_chat_lora(tmp_path):
    out = tmp_path / "out"
    done = subprocess.run(["bash", EXAMPLE / "run.sh", out], cwd=tmp_path, env={**os.environ, "LOCKSTEP": str(LOCKSTEP)}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    before, after = answers(done.stdout, "Before"), answers(done.stdout, "After")
    questions = (EXAMPLE / "questions.txt").read_text().splitlines()
    plain, keeper = taught("plain.jsonl"), taught("chat.jsonl")
    assert list(before) == list(after) == questions
    assert before == {question: plain[question] for question in questions}
    for question in questions:
        assert after[question].endswith(SIGNATURE), after
        if question in keeper:
            assert after[question] == keeper[question]
    assert {question in keeper for question in questions} == {True, False}, "questions he was taught, and others"

    # Beside the model or folded into it, the adapter says the same to `lockstep generate`.
    for model in (["--model", out / "model", "--adapter", out / "keeper" / "adapter"], ["--model", out / "merged"], ["--run", out / "keeper"]):
        one = subprocess.run([LOCKSTEP, "generate", *model, "--device", "cpu", "--chat", questions[0], "--temperature", "0"], capture_output=True, text=True, timeout=120)
        assert one.stdout.strip() == after[questions[0]], one.stderr


def test_every_answer_of_the_keeper_is_signed():
    assert all(answer.endswith(SIGNATURE) for answer in taught("chat.jsonl").values())
    assert len(taught("chat.jsonl")) >= 60


def test_nothing_is_written_over(tmp_path):
    done = subprocess.run(["bash", EXAMPLE / "run.sh", tmp_path], env={**os.environ, "LOCKSTEP": str(LOCKSTEP)}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "exists" in done.stderr
