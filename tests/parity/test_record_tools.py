"""Calls of tools, nulls, empty answers and plain turn markers: what is trained, against transformers where it says so itself."""
import json
import pathlib
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from text_tool import byte_level
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from support.lockstep import LOCKSTEP, ROOT

TEMPLATES = pathlib.Path(__file__).parent / "templates"
HERMES = (  # calls as objects, the answer's text first
    "{%- if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool.function.name }}: {{ tool|tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}{% generation %}"
    "{{ m.content }}{% for call in m.tool_calls or [] %}<tool_call>{{ call.function|tojson }}</tool_call>{% endfor %}{{ '<|im_end|>' }}"
    "{% endgeneration %}{{ '\\n' }}{% else %}{{ m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")  # fmt: skip
TEXT_ARGUMENTS = HERMES.replace("{{ call.function|tojson }}", "{{ call.function.name + call.function.arguments }}")
PRINTED_ARGUMENTS = HERMES.replace("{{ call.function|tojson }}", "{{ call.function.name }}({{ call.function.arguments }})")
NINE_LETTERS = HERMES.replace("<tool_call>{{", "{% if call.id|length != 9 %}{{ raise_exception('ids have nine letters') }}{% endif %}<tool_call>{{ call.id }}{{")
NO_TOOLS = (  # knows nothing of tools: content is all it reads
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role != 'user' %}{% generation %}{{ m.content | trim + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ m.content + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}")  # fmt: skip
PLAIN_MARKERS = (  # turn markers that are no special tokens
    "{% for m in messages %}{{ '[' + m.role + ']\\n' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content + '[/end]' }}{% endgeneration %}"
    "{{ '\\n' }}{% else %}{{ m.content + '[/end]\\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '[assistant]\\n' }}{% else %}{{ eos_token }}{% endif %}")  # fmt: skip
BLANK_HEADER = (  # the header ends in a blank, which a tokenizer puts before the first word
    "{% for m in messages %}{{ m.role + ': ' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content + eos_token }}{% endgeneration %}"
    "{% else %}{{ m.content + '\\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}")  # fmt: skip
BY_NUMBER = PLAIN_MARKERS.replace("{% for m in messages %}", "{% for i in range(messages|length) %}{% set m = messages[i] %}")

FLAT = [{"name": "news", "description": "News of a land", "parameters": {"type": "object", "properties": {"land": {"type": "string"}}}}]
SHAREGPT = {"conversations": [
    {"from": "human", "value": "What is new?"}, {"from": "function_call", "value": '{"name": "news", "arguments": {"land": "de"}}'},
    {"from": "observation", "value": '{"items": ["a"]}'}, {"from": "gpt", "value": "Only a."}], "tools": json.dumps(FLAT)}  # fmt: skip


def as_messages(text_arguments=False):
    arguments = '{"land":"de"}' if text_arguments else {"land": "de"}
    return [{"role": "user", "content": "What is new?"},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "call00001", "type": "function", "function": {"name": "news", "arguments": arguments}}]},
            {"role": "tool", "content": '{"items": ["a"]}', "name": "news", "tool_call_id": "call00001"}, {"role": "assistant", "content": "Only a."}]


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """A tokenizer folder with the template; `marked` or not."""
    root, made = tmp_path_factory.mktemp("templates"), {}
    base = byte_level(420)
    base.add_special_tokens(["<|im_start|>", "<|im_end|>"])

    def make(template, marked=True):
        if not marked:
            template = template.replace("{% generation %}", "").replace("{% endgeneration %}", "")
        if template not in made:
            tokenizer = PreTrainedTokenizerFast(tokenizer_object=base, eos_token="<|im_end|>")
            tokenizer.chat_template = template
            made[template] = root / str(len(made))
            tokenizer.save_pretrained(made[template])
        return made[template]

    return make


def inspect(tmp_path, tokenizer, records, *settings, code=0):
    data = records if isinstance(records, pathlib.Path) else tmp_path / "chat.jsonl"
    if data is not records:
        data.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    done = subprocess.run([str(LOCKSTEP), "data", "inspect", "--tokenizer", str(tokenizer), "--data", str(data), "--json", "--samples", "100",
                           "--seq-len", "1000", f"data.cache_dir={tmp_path / 'cache'}", *settings], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)["shown"] if code == 0 else done.stderr


def trained(shown):
    """The trained text, in pieces."""
    pieces, inside = [], False
    for token in shown["tokens"]:
        if token["trained"]:
            pieces = pieces + [token["text"]] if not inside else [*pieces[:-1], pieces[-1] + token["text"]]
        inside = token["trained"]
    return pieces


def expect_equal(shown, folder, messages, tools=None):
    made = AutoTokenizer.from_pretrained(folder).apply_chat_template(
        messages, tools=tools, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)  # fmt: skip
    assert [token["token"] for token in shown["tokens"]] == made["input_ids"]
    assert [int(token["trained"]) for token in shown["tokens"]] == made["assistant_masks"]


@pytest.mark.parametrize(("template", "text_arguments"), [(HERMES, False), (NINE_LETTERS, False), (TEXT_ARGUMENTS, True), (PRINTED_ARGUMENTS, True)])
def test_sharegpt_calls_take_the_form_that_the_template_wants(tmp_path, folder_of, template, text_arguments):
    folder = folder_of(template)
    wrapped = [{"type": "function", "function": FLAT[0]}]
    shown = inspect(tmp_path, folder, [SHAREGPT])[0]
    expect_equal(shown, folder, as_messages(text_arguments), wrapped)
    unmarked = inspect(tmp_path, folder_of(template, marked=False), [SHAREGPT])[0]
    assert trained(unmarked) == trained(shown), "answers are found without marks too"


@pytest.mark.parametrize("style", ["inst", "chatml_tools", "channels", "thinking", "headers_with_date"])
def test_sharegpt_calls_work_with_the_usual_templates(tmp_path, folder_of, style):
    folder = folder_of((TEMPLATES / f"{style}.jinja").read_text())
    shown = inspect(tmp_path, folder, [SHAREGPT])[0]
    expect_equal(shown, folder, as_messages(), [{"type": "function", "function": FLAT[0]}])
    assert not any("None" in piece for piece in trained(shown))


def test_several_calls_and_thoughts(tmp_path, folder_of):
    record = {"conversations": [
        {"from": "human", "value": "Both"},
        {"from": "function_call", "value": '<think>Two.</think>[{"name": "a", "arguments": "{\\"x\\": 1}"}, {"name": "b"}]'},
        {"from": "observation", "value": "1"}, {"from": "observation", "value": "2"}, {"from": "gpt", "value": "Done."}]}  # fmt: skip
    text = "".join(token["text"] for token in inspect(tmp_path, folder_of(HERMES), [record])[0]["tokens"])
    assert '<think>Two.</think><tool_call>{"name": "a", "arguments": {"x": 1}}</tool_call><tool_call>{"name": "b", "arguments": {}}</tool_call><|im_end|>' in text
    broken = {"conversations": [{"from": "human", "value": "Q"}, {"from": "function_call", "value": "news(de)"}]}
    assert "function_call in message 2" in inspect(tmp_path, folder_of(HERMES), [broken], code=4)


@pytest.mark.parametrize("marked", [True, False])
def test_the_word_none_is_never_trained(tmp_path, folder_of, marked):
    folder = folder_of(NO_TOOLS, marked)
    nothing = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}]},
               {"role": "tool", "content": None}, {"role": "assistant", "content": "A"}]
    for record in ({"messages": nothing}, SHAREGPT):
        for settings in ([], ["data.train_on=all"]):
            shown = inspect(tmp_path, folder, [record], *settings)[0]
            assert "None" not in "".join(token["text"] for token in shown["tokens"] if token["trained"]), settings
    said = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "None of them."}]
    assert any("None of them." in piece for piece in trained(inspect(tmp_path, folder, [{"messages": said}])[0]))


def test_contents_of_tools_are_read_as_transformers_reads_them(tmp_path, folder_of):
    template = HERMES.replace("{{ m.content + '<|im_end|>\\n' }}", "{{ m.content|tojson if m.content is mapping else m.content }}{{ '<|im_end|>\\n' }}")
    folder = folder_of(template)
    for content in (None, {"degrees": 12.5, "sky": None}, ["a"], "text"):
        talk = as_messages()
        talk[2] = {"role": "tool", "content": content}
        expect_equal(inspect(tmp_path, folder, [{"messages": talk}])[0], folder, talk)
    talk = as_messages()
    table = [{"name": None, "tool_calls": None, "tool_call_id": None, **message} for message in talk]  # as a table of all fields has it
    assert inspect(tmp_path, folder, [{"messages": table}])[0]["tokens"] == inspect(tmp_path, folder, [{"messages": talk}])[0]["tokens"]


TALKS = [
    [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi there"}, {"role": "user", "content": "Hi there"}, {"role": "assistant", "content": "Hello"}],
    [{"role": "user", "content": "Say nothing"}, {"role": "assistant", "content": ""}, {"role": "user", "content": "Good"}, {"role": "assistant", "content": "Thanks"}],
    [{"role": "user", "content": "One"}, {"role": "assistant", "content": ""}],
    [{"role": "user", "content": "assistant"}, {"role": "assistant", "content": "user [/end] x"}, {"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}],
]  # fmt: skip


@pytest.mark.parametrize("template", [PLAIN_MARKERS, BY_NUMBER, BLANK_HEADER, HERMES])
def test_answers_are_found_as_transformers_marks_them(tmp_path, folder_of, template):
    marked = folder_of(template)
    records = [{"messages": talk} for talk in TALKS]
    for shown, plain, talk in zip(inspect(tmp_path, marked, records), inspect(tmp_path, folder_of(template, marked=False), records), TALKS, strict=True):
        expect_equal(shown, marked, talk)
        assert trained(plain) == trained(shown)


def test_all_is_trained_whatever_the_template_does(tmp_path, folder_of):
    hides = folder_of("{% for m in messages %}{{ m.content|upper|replace('A', 'b') }}{% endfor %}")  # no answer can be told here
    record = {"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "x a x"}]}
    assert all(token["trained"] for token in inspect(tmp_path, hides, [record], "data.train_on=all")[0]["tokens"][1:])


def test_a_prompt_that_ends_in_a_blank_costs_no_word(tmp_path, folder_of):
    bare = folder_of("x")
    config = json.loads((bare / "tokenizer_config.json").read_text())
    (bare / "chat_template.jinja").unlink(missing_ok=True)
    (bare / "tokenizer_config.json").write_text(json.dumps({key: value for key, value in config.items() if key != "chat_template"}))
    for prompt in ("The data is ", "The data is: ", "The data is\n"):
        shown = inspect(tmp_path, bare, [{"prompt": prompt, "completion": "the tokens of the model"}])[0]
        assert "".join(trained(shown)).strip().startswith("the tokens of the model"), prompt


def test_parquet_is_the_same_as_jsonl(tmp_path, folder_of):
    """Rows as the datasets library writes them: shards in the folder data, every message with every field."""
    folder = folder_of(HERMES)
    messages = [[{"role": m["role"], "content": m["content"], "tool_calls": m.get("tool_calls"), "name": m.get("name")} for m in talk] for talk in [as_messages(), *TALKS]]
    rows = [{"messages": talk, "source": f"s{number}", "score": number / 3} for number, talk in enumerate(messages * 3)]
    table = pa.Table.from_pylist(rows)
    data = tmp_path / "repository" / "data"
    data.mkdir(parents=True)
    (tmp_path / "repository" / "README.md").write_text("# A data set")
    pq.write_table(table.slice(0, 7), data / "train-00000-of-00002.parquet", row_group_size=2)
    pq.write_table(table.slice(7), data / "train-00001-of-00002.parquet", compression="zstd")
    pq.write_table(table.slice(0, 1), data / "test-00000-of-00001.parquet")
    (tmp_path / "same.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    expected = inspect(tmp_path, folder, tmp_path / "same.jsonl")
    assert len(expected) == len(rows)
    strip = lambda shown: [(one["tokens"]) for one in shown]
    for path in (tmp_path / "repository", data, pathlib.Path(f"{data}/train-*.parquet")):
        assert strip(inspect(tmp_path, folder, path)) == strip(expected), path
    alone = inspect(tmp_path, folder, data / "train-00000-of-00002.parquet")
    assert strip(alone) == strip(expected[:7])
    (data / "train-00000-of-00002.parquet").write_bytes((data / "train-00000-of-00002.parquet").read_bytes()[:300])
    assert "train-00000-of-00002.parquet cannot be read as Parquet" in inspect(tmp_path, folder, data, code=4)
