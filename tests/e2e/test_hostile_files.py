"""Files that nobody honest writes: brackets without end, templates without end. An error with file and place, never a crash or a hang."""
import json
import subprocess

import pytest

from support.chat_model import write_tokenizer
from support.lockstep import LOCKSTEP

DEEP = "[" * 200_000 + "]" * 200_000
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 260, "max_position_embeddings": 128}
TALK = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}


def run(*args, timeout=60):
    return subprocess.run([LOCKSTEP, *map(str, args)], capture_output=True, text=True, timeout=timeout)


@pytest.fixture
def model(tmp_path):
    folder = write_tokenizer(tmp_path / "model")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def inspect(model, data):
    return run("data", "inspect", "--model", model, "--data", data)


FILES = {
    "config.json": ('{"model_type": "llama", "x": ' + DEEP + "}", 2, "config.json: it is no JSON object: line 1, column 529: brackets nest deeper than 500"),
    "tokenizer.json": (DEEP, 4, "tokenizer.json: this is no tokenizer"),
    "tokenizer_config.json": ('{"a": ' + DEEP + "}", 4, "tokenizer_config.json is not JSON: line 1, column 506: brackets nest deeper than 500"),
    "generation_config.json": ('{"a":\n' + DEEP + "}", 4, "generation_config.json is not JSON: line 2, column 500: brackets nest deeper than 500"),
    "many members": ("{" + ",".join(f'"k{i}": 1' for i in range(200_000)) + "}", 2, "names neither architectures nor a model_type"),
}


@pytest.mark.parametrize("name", FILES)
def test_model_folders(model, tmp_path, name):
    text, code, words = FILES[name]
    (model / (name if "." in name else "config.json")).write_text(text)
    (tmp_path / "data.jsonl").write_text(json.dumps(TALK) + "\n")
    done = inspect(model, tmp_path / "data.jsonl")
    assert done.returncode == code and words in done.stderr, done.stderr[-500:]


RECORDS = {
    "messages": ('{"messages": ' + DEEP + "}", "is broken JSON at column 513: brackets nest deeper than 500"),
    "content": ('{"messages": [{"role": "user", "content": ' + DEEP + "}]}", "brackets nest deeper than 500"),
    "a list as text": ('{"messages": "' + DEEP + '"}', "of no known format"),
    "tools as text": (json.dumps({**TALK, "tools": DEEP}), "no list of function descriptions"),
    "deeper than a template takes": (json.dumps({"messages": [{"role": "user", "content": "a", "x": json.loads("[" * 300 + "]" * 300)}, *TALK["messages"]]}),
                                     "recursion limit exceeded"),
}


@pytest.mark.parametrize("kind", RECORDS)
def test_records(model, tmp_path, kind):
    line, words = RECORDS[kind]
    (tmp_path / "data.jsonl").write_text(line + "\n")
    done = inspect(model, tmp_path / "data.jsonl")
    assert done.returncode == 4 and words in done.stderr and "data.jsonl:1" in done.stderr, done.stderr[-500:]


COMMANDS = {
    "yaml": ("c.yaml", "a: " + DEEP, ("train", "--dry-run", "-f"), 2, "deeper than 500"),
    "indents": ("c.yaml", "\n".join(" " * i + "a:" for i in range(3000)), ("train", "--dry-run", "-f"), 2, "deeper than 500"),
    "json settings": ("c.json", '{"a": ' + DEEP + "}", ("train", "--dry-run", "-f"), 2, "deeper than 500"),
    "import": ("c.json", '{"a": ' + DEEP + "}", ("config", "import"), 2, "deeper than 500"),
    "summary": ("s.json", '{"a": ' + DEEP + "}", ("plan", "--from"), 2, "deeper than 500"),
}


@pytest.mark.parametrize("kind", COMMANDS)
def test_commands(tmp_path, kind):
    name, text, command, code, words = COMMANDS[kind]
    (tmp_path / name).write_text(text)
    done = run(*command, tmp_path / name)
    assert done.returncode == code and words in done.stderr and name in done.stderr, done.stderr[-500:]


def test_prompts_and_adapters(model, tmp_path):
    (tmp_path / "p.jsonl").write_text('{"prompt": ' + DEEP + "}\n")
    done = run("generate", "--model", model, "--file", tmp_path / "p.jsonl", "--output", tmp_path / "o.jsonl")
    assert done.returncode == 4 and "line 1: this is not JSON: column 511" in done.stderr
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text('{"r": ' + DEEP + "}")
    done = run("merge", "--model", model, "--adapter", tmp_path / "adapter", "--output", tmp_path / "merged")
    assert done.returncode == 2 and "adapter_config.json: it is not a JSON object: line 1, column 506" in done.stderr
    assert not (tmp_path / "merged").exists()


GROW = "{% set n = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set n.s = WHAT %}{% endfor %}{{ n.s }}"
TEMPLATES = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
    "doubling": GROW.replace("WHAT", "n.s ~ n.s"),
    "adding": GROW.replace("WHAT", "n.s + n.s"),
    "joining": GROW.replace("WHAT", "[n.s, n.s, n.s]|join"),
    "replacing": GROW.replace("WHAT", "n.s|replace('a', 'aaaa')"),
    "doubling a list": GROW.replace("'aaaaaaaa'", "[1]").replace("WHAT", "n.s + n.s"),
    "nesting": GROW.replace("range(60)", "range(99999)").replace("WHAT", "[n.s]"),
    "capturing": "{% set s = 'aaaaaaaa' %}" + "{% set s %}{{ s }}{{ s }}{% endset %}" * 60,
    "ljust": "{{ 'a'.ljust(10000000000000) }}",
    "center": "{{ 'a'|center(10000000000000) }}",
    "indent": "{{ 'a\nb'|indent(10000000000000) }}",
    "format": "{{ '%1000000000000d'|format(1) }}",
    "repeating": "{{ 'a' * 1000000000000 }}",
    "a long list": "{{ (range(99999)|list * 1000)|sum }}",
    "searching": "{% for i in range(9999) %}{% if -5 in (range(99999)|list * 90) %}x{% endif %}{% endfor %}",
    "a macro that calls itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "parentheses": "{{ " + "(" * 200_000 + "1" + ")" * 200_000 + " }}",
    "blocks": "{% if 1 %}" * 100_000,
    "signs": "{{ " + "-" * 200_000 + "1 }}",
    "filters": "{{ 'a'" + "|upper" * 200_000 + " }}",
    "terms": "{{ 1" + " ~ 1" * 200_000 + " }}",
}


@pytest.mark.parametrize("kind", TEMPLATES)
def test_templates(model, tmp_path, kind):
    (model / "chat_template.jinja").write_text(TEMPLATES[kind])
    (tmp_path / "data.jsonl").write_text(json.dumps(TALK) + "\n")
    done = inspect(model, tmp_path / "data.jsonl")
    assert done.returncode == 4 and done.stderr.startswith("["), (done.returncode, done.stderr[-500:])
    assert str(model) in done.stderr or "nothing to train" in done.stderr, done.stderr[-500:]


def test_a_library_that_gives_up_says_so_once(model, tmp_path):
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    tokenizer["decoder"] = {"type": "ByteLevel", "add_prefix_space": "often"}
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    (tmp_path / "data.jsonl").write_text(json.dumps(TALK) + "\n")
    done = inspect(model, tmp_path / "data.jsonl")
    assert done.returncode == 4 and done.stderr.startswith("[text]") and "panicked" not in done.stderr, done.stderr[-500:]
