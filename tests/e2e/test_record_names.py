"""Records under other names: fields, roles, templates and words that the settings give, and records of other trainings, refused by name."""
import json
import subprocess

import pytest

from support.chat_model import write_model, write_tokenizer
from support.lockstep import LOCKSTEP

CHAT = "<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n[[{}<|im_end|>]]\n"
SYSTEM = "<|im_start|>system\nBe kind.<|im_end|>\n"
INLINE = "{% for m in messages %}{{ '<' + m['role'] + '>' + m['content'] + eos_token }}{% endfor %}{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
ALPACA = "Below is an instruction that describes a task{}. Write a response that appropriately completes the request.\n\n### Instruction:\nWho?\n\n"

# name: (record, settings, the text with what is trained marked)
READ = {
    "fields of an alpaca record": ({"question": "Who?", "answer": "SHORT", "long_answer": "A long one", "input": "not read", "system": "not read"},
                                   ["data.format=alpaca", "data.prompt_field=question", "data.completion_field=long_answer", "data.input_field=none", "data.system_field=none"],
                                   CHAT.format("A long one")),
    "a system field": ({"instruction": "Who?", "output": "Me.", "sys": "Be kind."}, ["data.system_field=sys"], SYSTEM + CHAT.format("Me.")),
    "an input field": ({"instruction": "Who?", "about": "The cat", "output": "Me."}, ["data.input_field=about"],
                       CHAT.format("Me.").replace("Who?", "Who?\nThe cat")),
    "a history field": ({"instruction": "Who?", "output": "Me.", "before": [["Who?", "You."]]}, ["data.history_field=before"], CHAT.format("You.") + CHAT.format("Me.")),
    "roles": ({"talk": [{"who": "customer", "said": "Who?"}, {"who": "agent", "said": "Me."}]},
              ["data.format=messages", "data.messages_field=talk", "data.role_field=who", "data.content_field=said", "data.roles=user=customer,assistant=agent"], CHAT.format("Me.")),
    "roles of sharegpt": ({"conversations": [{"from": "customer", "value": "Who?"}, {"from": "agent", "value": "Me."}]},
                          ["data.roles=user=customer,assistant=agent"], CHAT.format("Me.")),
    "a template in the setting": ({"prompt": "Who?", "completion": "Me."}, [f"data.chat_template={INLINE}"], "<user>Who?<|im_end|><assistant>[[Me.<|im_end|>]]"),
    "Alpaca's words": ({"instruction": "Who?", "output": "Me."}, ["data.prompt_style=alpaca"], ALPACA.format("") + "### Response:\n[[Me.<|im_end|>]]"),
    "Alpaca's words with input": ({"instruction": "Who?", "input": "The cat", "output": "Me."}, ["data.prompt_style=alpaca"],
                                  ALPACA.format(", paired with an input that provides further context") + "### Input:\nThe cat\n\n### Response:\n[[Me.<|im_end|>]]"),
    "whole chats": ({"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Me."}]}, ["data.train_on=whole_chats"],
                    "<|im_start|>[[" + CHAT.format("Me.").replace("[[", "").replace("]]", "")[len("<|im_start|>"):] + "]]"),
    "completions of prompts": ({"prompt": "Who?", "completion": "Me."}, ["data.train_on=whole_chats"], CHAT.format("Me.")),
    "the better answers": ({"prompt": "Who?", "chosen": "Me.", "rejected": "No."}, ["data.prompt_field=prompt", "data.completion_field=chosen"], CHAT.format("Me.")),
    "no images": ({"prompt": "Who?", "completion": "Me.", "images": []}, [], CHAT.format("Me.")),
}
REFUSED = {
    "preference": ({"prompt": "Who?", "chosen": "Me.", "rejected": "No."}, [], "is one of preference training (chosen and rejected), which is not built"),
    "preference beside a chat": ({"conversations": [{"from": "human", "value": "Who?"}], "chosen": {"from": "gpt", "value": "Me."}, "rejected": {"from": "gpt", "value": "No."}}, [],
                                 "is one of preference training"),
    "KTO": ({"prompt": "Who?", "completion": "Me.", "label": False}, [], "is one of KTO (label says whether its answer is a good one)"),
    "KTO beside a chat": ({"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Me."}], "label": True}, [], "is one of KTO"),
    "images": ({"messages": [{"role": "user", "content": "<image>Who?"}, {"role": "assistant", "content": "Me."}], "images": ["a.jpg"]}, [], "holds images"),
    "an image in a message": ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}, {"role": "assistant", "content": "Me."}]}, [],
                              "has a part of type image_url in 'messages'"),
    "a role without a name": ({"messages": [{"role": "user", "content": "Who?"}, {"role": "robot", "content": "Me."}]}, ["data.roles=user=user,assistant=assistant"],
                              'has the role "robot" in message 2, which data.roles does not name (it names user, assistant)'),
    "a template that is none": ({"prompt": "Who?", "completion": "Me."}, ["data.chat_template=nowhere.jinja"], "data.chat_template=nowhere.jinja is no file, and no template"),
    "a template too long for a file": ({"prompt": "Who?", "completion": "Me."}, ["data.chat_template=" + "x" * 5000], "... is no file, and no template"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def inspect(tmp_path, folder, record, settings):
    (tmp_path / "data.jsonl").write_text(2 * (json.dumps(record) + "\n"))  # one object alone could be a list of records
    command = [str(LOCKSTEP), "data", "inspect", "--tokenizer", str(folder), "--data", str(tmp_path / "data.jsonl"), "data.seq_len=250", f"data.cache_dir={tmp_path / 'cache'}"]
    return subprocess.run([*command, *settings], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("case", READ)
def test_what_is_trained(tmp_path, folder, case):
    record, settings, text = READ[case]
    done = inspect(tmp_path, folder, record, settings)
    assert done.returncode == 0, done.stderr
    assert text in done.stdout


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(tmp_path, folder, case):
    record, settings, said = REFUSED[case]
    done = inspect(tmp_path, folder, record, settings)
    assert done.returncode == 4 and said in done.stderr, done.stdout + done.stderr


def train(tmp_path, model, *settings):
    command = [str(LOCKSTEP), "train", "--model", str(model), "--data", str(tmp_path / "data.jsonl"), "--device", "cpu", "--ranks", "2", "--headless", "--output", str(tmp_path),
               "--name", "run", f"data.cache_dir={tmp_path / 'cache'}", "data.seq_len=200", "trainer.batch_size=2", "model.dtype=f32", "monitor.sample_tokens=0", *settings]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "tiny-chat")


def write_prompts(tmp_path, count=41):
    lines = [json.dumps({"prompt": "Who?", "completion": "Me." * (1 + number % 9)}) for number in range(count)]
    (tmp_path / "data.jsonl").write_text("\n".join(lines) + "\n")


def test_a_dry_run_says_the_steps(tmp_path, model):
    write_prompts(tmp_path)
    for settings, steps, warmup in [
        (["trainer.num_epochs=2", "data.validation_fraction=0", "trainer.warmup_ratio=0.1"], 22, 3),  # ceil(41 / 4) twice; a tenth, rounded up
        (["data.validation_fraction=0", "trainer.warmup_ratio=0.5", "trainer.warmup_steps=4"], 11, 4),  # the shorter of the two
        (["data.validation_fraction=0.25"], 8, 0),  # 31 are left
        (["trainer.max_steps=7", "trainer.warmup_ratio=0.5"], 7, 4),
    ]:
        (said,) = map(json.loads, train(tmp_path, model, "--dry-run", *settings).splitlines())
        assert (said["steps"], said["warmup_steps"]) == (steps, warmup)
    assert not (tmp_path / "run").exists()


def test_a_run_takes_the_steps_that_a_dry_run_said(tmp_path, model):
    """Packed rows are counted as ranks count them; warm-up as a share is warm-up of so many steps."""
    write_prompts(tmp_path)
    share = ["data.packing=true", "trainer.num_epochs=3", "trainer.warmup_ratio=0.5", "trainer.log_interval=1"]
    (said,) = map(json.loads, train(tmp_path, model, "--dry-run", *share).splitlines())
    assert 2 < said["steps"] < 33
    train(tmp_path, model, *share)
    train(tmp_path, model, *share[:2], f"trainer.warmup_steps={said['warmup_steps']}", "trainer.log_interval=1", "--name", "counted")
    rates = {}
    for name in ("run", "counted"):
        events = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        assert next(event["total_steps"] for event in events if event.get("event") == "model") == said["steps"]
        rates[name] = [event["learning_rate"] for event in events if "learning_rate" in event]
    assert rates["run"] == rates["counted"] and len(set(rates["run"])) > 2
