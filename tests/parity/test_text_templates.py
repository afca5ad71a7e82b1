"""Chat templates against transformers: the text, the assistant's mask, and answers found where a template does not mark them."""
import pathlib
import re

import pytest
from text_tool import byte_level
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

TEMPLATES = pathlib.Path(__file__).parent / "templates"

# name: the tokens a model of that style has. "ends" are those that generation stops at, beside eos.
STYLES = {
    "chatml": {"eos": "<|im_end|>", "special": ["<|im_start|>"]},
    "headers_with_date": {"bos": "<|begin_of_text|>", "eos": "<|eot_id|>", "special": ["<|start_header_id|>", "<|end_header_id|>"]},
    "inst": {"bos": "<s>", "eos": "</s>", "special": ["[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
                                                      "[TOOL_RESULTS]", "[/TOOL_RESULTS]"]},
    "chatml_tools": {"eos": "<|im_end|>", "special": ["<|im_start|>", "<|endoftext|>"]},
    "thinking": {"eos": "<|im_end|>", "special": ["<|im_start|>", "<|endoftext|>"]},
    "turns": {"bos": "<bos>", "eos": "<eos>", "special": ["<start_of_turn>", "<end_of_turn>"], "ends": ["<end_of_turn>"]},
    "ends": {"bos": "<s>", "eos": "<|endoftext|>", "special": ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"],
             "ends": ["<|end|>"]},
    "fullwidth": {"bos": "<｜begin▁of▁sentence｜>", "eos": "<｜end▁of▁sentence｜>", "special": ["<｜User｜>", "<｜Assistant｜>"]},
    "macros": {"bos": "<BOS_TOKEN>", "eos": "<|END_OF_TURN_TOKEN|>", "special": ["<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>"]},
    "bars": {"bos": "<s>", "eos": "</s>", "special": []},
    "instruction": {"eos": "<|endoftext|>", "special": []},
    "roles_and_documents": {"eos": "<|end_of_text|>", "special": ["<|start_of_role|>", "<|end_of_role|>"]},
    "colon_names": {"bos": "<s>", "eos": "</s>", "special": []},
    "channels": {"eos": "<|return|>", "special": ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>"],
                 "ends": ["<|call|>"]},
}  # fmt: skip

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather at a place, in °C & <b>words</b>",
    "parameters": {"type": "object", "required": ["place"], "properties": {
        "place": {"type": "string", "description": "City, e.g. \"Köln\""},
        "days": {"type": "array", "items": {"type": "integer"}, "description": "Which days"},
        "unit": {"type": ["string", "null"], "enum": ["C", "F"]}}}}}  # fmt: skip
NOW = {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}, "required": []}}}


def call(name, arguments, number=0):
    return {"id": f"call{number:05}", "type": "function", "function": {"name": name, "arguments": arguments}}


TOOLS_TALK = [
    {"role": "user", "content": "Weather in Köln?"},
    {"role": "assistant", "content": "", "tool_calls": [call("get_weather", {"place": "Köln", "days": [1, 2], "scale": 0.00001})]},
    {"role": "tool", "name": "get_weather", "tool_call_id": "call00000", "content": "{\"degrees\": 12.5}"},
    {"role": "assistant", "content": "12.5 degrees \"mild\" & <fine>."},
]
CONVERSATIONS = {
    "one turn": {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi, how can I help?"}]},
    "asked": {"messages": [{"role": "user", "content": "What is 2 + 2?"}], "add_generation_prompt": True},
    "system": {"messages": [{"role": "system", "content": "  Be brief.\n"}, {"role": "user", "content": "Why?"},
                            {"role": "assistant", "content": "Because."}]},
    "many turns": {"messages": [
        {"role": "system", "content": "You are Ada."}, {"role": "user", "content": "One"}, {"role": "assistant", "content": "Two"},
        {"role": "user", "content": "Two"}, {"role": "assistant", "content": "  Two\n\n"}, {"role": "user", "content": "assistant"},
        {"role": "assistant", "content": "user\nassistant"}]},
    "many turns, asked": {"messages": [
        {"role": "user", "content": "One"}, {"role": "assistant", "content": "One"}, {"role": "user", "content": "Three"}],
        "add_generation_prompt": True},
    "unicode": {"messages": [
        {"role": "user", "content": "👍🏽 e\u0301 日本語 \u200b\ufeff <b>&amp;</b> 'q' \"d\" \\n {{ x }} {% y %}"},
        {"role": "assistant", "content": "Gewiß: “naïve” 🇩🇪 – 한국어 \t tab\r\nnew line"}]},
    "tools": {"messages": TOOLS_TALK, "tools": [WEATHER, NOW]},
    "tools, then talk": {"messages": [*TOOLS_TALK, {"role": "user", "content": "Thanks!"}, {"role": "assistant", "content": "Gladly."}],
                         "tools": [WEATHER]},
    "two calls": {"messages": [
        {"role": "system", "content": "Use tools."}, {"role": "user", "content": "Both"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": [call("now", {}), call("get_weather", {"place": "Ōsaka", "unit": None}, 1)]},
        {"role": "tool", "name": "now", "tool_call_id": "call00000", "content": "12:00"},
        {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": "rain"},
        {"role": "assistant", "content": "Noon, rain."}], "tools": [WEATHER, NOW]},
    "thoughts": {"messages": [
        {"role": "user", "content": "6 x 7?"}, {"role": "assistant", "reasoning_content": "\nSix sevens.\n", "content": "42"},
        {"role": "user", "content": "And 6 x 8?"}, {"role": "assistant", "thinking": "Six more.", "content": "48"}]},
    "thoughts in the text": {"messages": [
        {"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": "<think>\nSix sevens: 42.\n</think>\n\nIt is 42."},
        {"role": "user", "content": "Sure?"}, {"role": "assistant", "content": "<think>\nYes.\n</think>\n\nYes, 42."}]},
    "no thoughts wanted": {"messages": [{"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": "42"},
                                        {"role": "user", "content": "48?"}],
                           "variables": {"enable_thinking": False, "reasoning_effort": "low"}, "add_generation_prompt": True},
    "documents": {"messages": [{"role": "user", "content": "Where is it?"}, {"role": "assistant", "content": "In A."}],
                  "variables": {"documents": [{"doc_id": 1, "title": "A", "text": "It is here.\n<br>"}, {"title": "B", "text": "ü"}]}},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "Look "}, {"type": "text", "text": "there"}]},
                           {"role": "assistant", "content": [{"type": "text", "text": "I see."}]}]},
    "wrong order": {"messages": [{"role": "assistant", "content": "First!"}, {"role": "user", "content": "No."}]},
    "unknown role": {"messages": [{"role": "user", "content": "a"}, {"role": "alien", "content": "b"}]},
    "date": {"messages": [{"role": "user", "content": "Day?"}, {"role": "assistant", "content": "Today."}],
             "variables": {"date_string": "26 Jul 2024", "tools_in_user_message": False}, "tools": [NOW]},
    "empty answer": {"messages": [{"role": "user", "content": "Say nothing."}, {"role": "assistant", "content": ""}]},
}  # fmt: skip


def source_of(name, marked=True):
    text = (TEMPLATES / f"{name}.jinja").read_text()
    if marked:
        return text
    # The same tags as far as white space goes, but nothing is marked.
    return re.sub(r"(\{%[-+]?\s*)generation\b", r"\1if true", re.sub(r"\bendgeneration\b", "endif", text))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A tokenizer folder for each style, written by transformers."""
    root = tmp_path_factory.mktemp("styles")
    base = byte_level().to_str()
    made = {}
    for name, style in STYLES.items():
        backend = Tokenizer.from_str(base)
        tokens = [style[key] for key in ("bos", "eos") if key in style] + style["special"]
        backend.add_special_tokens(tokens)
        named = {f"{key}_token": style[key] for key in ("bos", "eos") if key in style}
        made[name] = PreTrainedTokenizerFast(tokenizer_object=backend, **named)
        made[name].chat_template = source_of(name)
        made[name].save_pretrained(root / name)
        ends = [made[name].convert_tokens_to_ids(token) for token in [style["eos"], *style.get("ends", [])]]
        (root / name / "generation_config.json").write_text(f'{{"eos_token_id": {ends}}}')
    return root, made


def reference(tokenizer, talk, **options):
    return tokenizer.apply_chat_template(
        talk["messages"], tools=talk.get("tools"), add_generation_prompt=talk.get("add_generation_prompt", False),
        **talk.get("variables", {}), **options)  # fmt: skip


def request(talk):
    return {key: talk[key] for key in ("messages", "tools", "variables", "add_generation_prompt") if key in talk}


@pytest.mark.parametrize("talk", CONVERSATIONS)
@pytest.mark.parametrize("style", STYLES)
def test_text_equals_transformers(tool, folders, style, talk):
    root, made = folders
    ours = tool.ask("render", folder=str(root / style), **request(CONVERSATIONS[talk]))
    try:
        expected = reference(made[style], CONVERSATIONS[talk], tokenize=False)
    except Exception as refusal:
        assert "error" in ours, f"transformers refuses ({refusal}), we do not: {ours}"
        if type(refusal).__name__ == "TemplateError":
            assert str(refusal) in ours["error"]
        return
    assert ours.get("text") == expected, ours


@pytest.mark.parametrize("talk", CONVERSATIONS)
@pytest.mark.parametrize("style", STYLES)
def test_marks_equal_transformers(tool, folders, style, talk):
    root, made = folders
    try:
        expected = reference(made[style], CONVERSATIONS[talk], tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
    except Exception:
        expected = None
    ours = tool.ask("render", folder=str(root / style), marked=True, **request(CONVERSATIONS[talk]))
    if expected is None:
        assert "error" in ours
        return
    assert ours["tokens"] == expected["input_ids"]
    assert [int(bit) for bit in ours["mask"]] == list(expected["assistant_masks"])


@pytest.mark.parametrize("talk", CONVERSATIONS)
@pytest.mark.parametrize("style", STYLES)
def test_answers_are_found_without_marks(tool, folders, style, talk):
    root, _ = folders
    folder = str(root / style)
    marked = tool.ask("render", folder=folder, marked=True, **request(CONVERSATIONS[talk]))
    plain = tool.ask("render", folder=folder, marked=True, template=source_of(style, marked=False), **request(CONVERSATIONS[talk]))
    if "error" in marked:
        assert "error" in plain
        return
    assert plain.get("text") == marked["text"], plain
    assert plain["answers"] == marked["answers"]
    assert plain["mask"] == marked["mask"]
