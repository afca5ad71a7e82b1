"""Tokens and masks of conversations, as `lockstep data inspect` shows them, against transformers' apply_chat_template."""
import json
import subprocess

import pytest
from transformers import AutoTokenizer

from support.chat_model import TEMPLATE, write_tokenizer
from support.lockstep import LOCKSTEP, ROOT

TALKS = [
    [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi, how can I help?"}],
    [{"role": "system", "content": "Be brief — très bref."}, {"role": "user", "content": "Why? 你好 👍🏽"}, {"role": "assistant", "content": "Weil 3 > 2. ✨"}],
    [{"role": "user", "content": "One"}, {"role": "assistant", "content": "Two"}, {"role": "user", "content": "assistant\n"},
     {"role": "assistant", "content": "  <|im_start|> and user\n\n"}],
    [{"role": "user", "content": "nobody answers"}],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def inspect(tmp_path, tokenizer, records, *settings):
    data = tmp_path / "chat.jsonl"
    data.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    done = subprocess.run([str(LOCKSTEP), "data", "inspect", "--tokenizer", str(tokenizer), "--data", str(data), "--json", "--samples", "100",
                           f"data.cache_dir={tmp_path / 'cache'}", *settings], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["shown"]


def expect_equal(shown, tokenizer, messages):
    made = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
    assert [token["token"] for token in shown["tokens"]] == made["input_ids"]
    assert [int(token["trained"]) for token in shown["tokens"]] == made["assistant_masks"]


def test_messages(tmp_path, folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for shown, talk in zip(inspect(tmp_path, folder, [{"messages": talk} for talk in TALKS]), TALKS, strict=True):
        expect_equal(shown, tokenizer, talk)


def test_a_template_without_marks_trains_the_same(tmp_path, folder):
    """What the assistant said is found by comparing; the end of the turn belongs to it."""
    plain = write_tokenizer(tmp_path / "plain", TEMPLATE.replace("{% generation %}", "").replace("{% endgeneration %}", ""))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for shown, talk in zip(inspect(tmp_path, plain, [{"messages": talk} for talk in TALKS[:3]]), TALKS[:3], strict=True):
        made = tokenizer.apply_chat_template(talk, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
        assert [token["token"] for token in shown["tokens"]] == made["input_ids"]
        # A template that does not say so leaves open whether the line end after <|im_end|> is the assistant's.
        for token, wanted in zip(shown["tokens"], made["assistant_masks"], strict=True):
            assert int(token["trained"]) == wanted or (token["text"] == "\n" and token["trained"])


def test_other_formats_are_the_same_conversation(tmp_path, folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    asked, answered = "Is café open?", "Yes – until 9."
    messages = [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]
    for record in (
        {"conversations": [{"from": "human", "value": asked}, {"from": "gpt", "value": answered}]},
        {"instruction": asked, "input": "", "output": answered},
        {"prompt": asked, "completion": answered},
        {"question": asked, "answer": answered},
    ):
        expect_equal(inspect(tmp_path, folder, [record])[0], tokenizer, messages)


def test_without_a_template_prompt_completion_and_end(tmp_path):
    folder = write_tokenizer(tmp_path / "plain", None)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompt, completion = "2 + 2 = ", "4, très bien"
    shown = inspect(tmp_path, folder, [{"prompt": prompt, "completion": completion}])[0]
    asked, answered = tokenizer(prompt)["input_ids"], tokenizer(completion)["input_ids"]
    assert [token["token"] for token in shown["tokens"]] == asked + answered + [tokenizer.eos_token_id]
    assert [token["trained"] for token in shown["tokens"]] == [False] * len(asked) + [True] * (len(answered) + 1)
