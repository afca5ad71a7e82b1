"""Tokenizers against the Python package: numbers, byte offsets, special tokens and the way back, on texts that break things."""
import json
import shutil

import pytest
import text_tool
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

TEXTS = [
    "", " ", "\n", "\r\n", "Hello, world!", "  leading and trailing  ", "a" * 300, " " * 257, "\t\t x", "line\r\nline\rline\n\n\nline",
    "👍🏽👨‍👩‍👧‍👦🇩🇪", "你好，世界。こんにちは 세계", "e\u0301 vs é, ﬁ vs fi, Å vs Å", "Привет мир! Ça va? Straße", "\u200b\ufeff\u00a0\u2003x",
    "1234567890 3.14159 1,000,000 0x1F", "don't I'll they've 'S", "def f(x):\n    return x ** 2  # square\n", "{\"a\": [1, 2], \"b\": null}",
    "<|endoftext|>", "a<|endoftext|>b <|im_start|>user\nhi<|im_end|>", "[CLS] x [SEP] </s> <s> <pad>", "<|endof text|>", "\u0000\u0001\u007f",
    "mixed 日本 and latin—dash…ellipsis “quotes”", "ÀÉÎÕÜ ÀÉÎ", "\U0001F9D1\u200d\U0001F680 \U00010348 \U0010FFFD", "the " * 200,
]  # fmt: skip


def write(folder, backend, **named):
    PreTrainedTokenizerFast(tokenizer_object=backend, **named).save_pretrained(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """name -> a folder with that tokenizer; real ones are skipped where npm could not bring them."""
    root = tmp_path_factory.mktemp("tokenizers")

    def make(name):
        if name in ("gpt2", "qwen2_5"):
            if not (text_tool.REAL / name / "tokenizer.json").exists():
                pytest.skip(f"tools/setup-tokenizers.sh has not fetched the tokenizer of {name}")
            return text_tool.REAL / name
        if not (root / name).exists():
            if name == "cut_and_padded":  # what a tokenizer.json may carry and a run must not obey
                backend = text_tool.byte_level()
                backend.enable_truncation(5)
                backend.enable_padding(length=12)
                (root / name).mkdir()
                backend.save(str(root / name / "tokenizer.json"))
            else:
                named = {"byte_level": {"eos_token": "<|endoftext|>"}, "unigram": {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"},
                         "wordpiece": {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"},
                         "byte_fallback": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}}  # fmt: skip
                write(root / name, getattr(text_tool, name)(), **named[name])
        return root / name

    return make


NAMES = ["gpt2", "qwen2_5", "byte_level", "unigram", "wordpiece", "byte_fallback", "cut_and_padded"]


def python_side(path):
    backend = Tokenizer.from_file(str(path / "tokenizer.json"))
    backend.no_truncation()
    backend.no_padding()
    return backend


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_encode_equals_python(tool, folder, name, special):
    path = folder(name)
    backend = python_side(path)
    for text in TEXTS:
        expected = backend.encode(text, add_special_tokens=special)
        ours = tool.ask("encode", folder=str(path), text=text, special=special)
        assert ours["tokens"] == expected.ids, text
        assert ours["fast"] == expected.ids, text
        # Python counts characters, we count bytes.
        starts = [len(text[:i].encode()) for i in range(len(text) + 1)]
        assert ours["spans"] == [[starts[begin], starts[end]] for begin, end in expected.offsets], text


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_decode_equals_python(tool, folder, name, skip):
    path = folder(name)
    backend = python_side(path)
    rows = [backend.encode(text).ids for text in TEXTS] + [list(range(0, 300, 7)), [5], []]
    for ids in rows:
        assert tool.ask("decode", folder=str(path), tokens=ids, skip_special=skip)["text"] == backend.decode(ids, skip_special_tokens=skip)


@pytest.mark.parametrize("name", NAMES)
def test_vocabulary_equals_python(tool, folder, name):
    path = folder(name)
    backend = python_side(path)
    words = ["<|endoftext|>", "<|im_end|>", "</s>", "[SEP]", "the", "Ġthe", "▁the", "no such token"]
    ours = tool.ask("describe", folder=str(path), find=words)
    assert ours["size"] == max(backend.get_vocab().values()) + 1
    assert ours["found"] == [backend.token_to_id(word) for word in words]
    special = {number for number, token in backend.get_added_tokens_decoder().items() if token.special}
    assert ours["special"] == [number in special for number in ours["found"]]


@pytest.mark.parametrize("name", NAMES[:-1])
def test_named_tokens_equal_transformers(tool, folder, name):
    path = folder(name)
    reference = AutoTokenizer.from_pretrained(path)
    ours = tool.ask("describe", folder=str(path))
    for short in ("bos", "eos", "pad", "unk"):
        config = json.loads((path / "tokenizer_config.json").read_text())
        if f"{short}_token" in config:  # transformers fills in what the class of old models assumes
            assert ours[short] == (getattr(reference, f"{short}_token") or ""), short
    assert ours["chat_template"] == (reference.chat_template or "")


def test_a_real_template_of_a_real_model(tool, folder):
    path = folder("qwen2_5")
    reference = AutoTokenizer.from_pretrained(path)
    talk = [{"role": "user", "content": "Weather in Köln & Bonn?"},
            {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "w", "arguments": {"p": "Köln", "x": 1e-7}}}]},
            {"role": "tool", "content": "12°"}, {"role": "assistant", "content": "12 degrees."}]  # fmt: skip
    tools = [{"type": "function", "function": {"name": "w", "description": "\"<b>\" é", "parameters": {"type": "object", "properties": {}}}}]
    for given in (None, tools):
        for prompt in (False, True):
            ours = tool.ask("render", folder=str(path), messages=talk, tools=given, add_generation_prompt=prompt)
            assert ours["text"] == reference.apply_chat_template(talk, tools=given, add_generation_prompt=prompt, tokenize=False)
    marked = tool.ask("render", folder=str(path), messages=talk, marked=True)
    assert marked["answers"] == ['<tool_call>\n{"name": "w", "arguments": {"p": "Köln", "x": 1e-07}}\n</tool_call><|im_end|>', "12 degrees.<|im_end|>"]


@pytest.mark.parametrize(("files", "expected"), [
    ({"chat_template.jinja": "jinja", "tokenizer_config.json": {"chat_template": "config"}}, "jinja"),
    ({"chat_template.json": {"chat_template": "json"}, "tokenizer_config.json": {"chat_template": "config"}}, "json"),
    ({"tokenizer_config.json": {"chat_template": "config"}}, "config"),
    ({"tokenizer_config.json": {"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]}}, "d"),
    ({"tokenizer_config.json": {"chat_template": None}}, ""),
    ({}, ""),
])  # fmt: skip
def test_where_a_template_is_looked_for(tool, folder, tmp_path, files, expected):
    shutil.copy(folder("byte_level") / "tokenizer.json", tmp_path)
    for name, content in files.items():
        (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
    assert tool.ask("describe", folder=str(tmp_path))["chat_template"] == expected


def test_end_tokens(tool, folder, tmp_path):
    shutil.copy(folder("byte_level") / "tokenizer.json", tmp_path)
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"eos_token": {"content": "<|endoftext|>", "lstrip": False}}))
    end = tool.ask("describe", folder=str(tmp_path), find=["<|endoftext|>"])
    assert end["eos"] == "<|endoftext|>" and end["end_tokens"] == end["found"]
    for given, expected in ((7, [7, end["found"][0]]), ([9, 7, 9], [9, 7, end["found"][0]])):
        other = tmp_path / f"with {given}"
        shutil.copytree(tmp_path, other, ignore=shutil.ignore_patterns("with*"))
        (other / "generation_config.json").write_text(json.dumps({"eos_token_id": given}))
        assert tool.ask("describe", folder=str(other))["end_tokens"] == expected


@pytest.mark.parametrize(("files", "expected"), [
    ({"config.json": {"eos_token_id": [9, 7]}}, [9, 7]),
    ({"config.json": {"eos_token_id": 7}}, [7]),
    ({"config.json": {"text_config": {"eos_token_id": [7]}}}, [7]),
    ({"config.json": {"eos_token_id": None}}, []),
    ({"config.json": {"eos_token_id": -1}}, []),
    ({"config.json": {"eos_token_id": [9]}, "generation_config.json": {"eos_token_id": [7]}}, [7]),
    ({"config.json": {"eos_token_id": [9]}, "generation_config.json": {"do_sample": True}}, []),
])  # fmt: skip
def test_end_tokens_of_the_models_config(tool, folder, tmp_path, files, expected):
    """As transformers has it: config.json counts where there is no generation_config.json."""
    shutil.copy(folder("byte_level") / "tokenizer.json", tmp_path)
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    assert tool.ask("describe", folder=str(tmp_path))["end_tokens"] == expected
