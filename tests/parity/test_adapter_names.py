"""Names of modules matched by regular expressions as Python's re matches them, or the expression refused."""
import random
import re
import warnings

import pytest

from parity.text_tool import TextTool

NAMES = [f"model.layers.{block}.{module}" for block in (0, 1, 10, 31)
         for module in ("self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.down_proj")]
NAMES += ["lm_head", "model.embed_tokens", "", "a", "ab", "abc", "q_proj"]
UNSLOTH = (r"(?:.*?(?:language|text).*?(?:self_attn|attention|attn|mlp|feed_forward|ffn|dense).*?"
           r"(?:q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj).*?)|(?:\bmodel\.layers\.[\d]{1,}\."
           r"(?:self_attn|attention|attn|mlp|feed_forward|ffn|dense)\.(?:(?:q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)))")
WRITTEN = [
    UNSLOTH, r".*\.layers\.\d+\.self_attn\.(q|k|v)_proj", r"^(?!.*visual).*(?:q_proj|k_proj|down_proj).*", r"model\.layers\.(1[0-9]|[0-9])\..*",
    r"(.*\.)?(q_proj)$", r"a**", r"a{,}", r"{3}", r"a{3", r"[]a]", r"[^]a]", r"[a-", r"\b*", r"a{2}{3}", r"()*", r"(?:)*a", r"^*", r"x|", r"|",
    r"[\d-z]", r"[a-\d]", r"[z-a]", r"\_", r"[\w.]+", r".*[._](q|v)_proj", r"(a|ab)(c|bcd)(d*)", r"(?=.*attn).*q_proj", r"[", r")", r"(", r"\\",
    "\\", r".{0,40}", r"(.*)*", r"(a*)*b", r"((a+)+)+$", r"\Amodel.*\Z", r"[a\]b]", r"[\b]", r"model.layers.[0-9]?[02468].self_attn.q_proj",
    r"(?P<x>a)", r"(?P<x>a)(?P<x>b)", r"(?P<1>a)", r"a???", r"a{2,1}", r"(?:a", r"model\.layers\.(?:[0-9]|1[0-5])\.(?:self_attn|mlp)\.\w+",
]
REFUSED = {r"(?P<x>a)(?P=x)": "not understood", r"(a)\1": "back reference", r"(?i)A": "not understood", r"(?<=a)b": "not understood",
           r"a*+": "possessive", r"(?>a)b": "not understood", "é": "not ASCII", r"a{1001}": "1000 times", r"\x61": "not understood",
           "a" * 20000: "longer than", "(" * 200 + ")" * 200: "deeper than"}


def drawn(source: random.Random, depth: int = 0) -> str:
    kind = source.random()
    if depth > 3 or kind < 0.35:
        return source.choice(["a", "b", r"\.", ".", r"\d", r"\w", "_", "q_proj", "model", "layers", "[a-z]", "[^a]", "[0-9_]", r"\bm", "self_attn",
                              ".*", r"[\w.]"])
    if kind < 0.55:
        return drawn(source, depth + 1) + drawn(source, depth + 1)
    if kind < 0.7:
        return f"({drawn(source, depth + 1)}|{drawn(source, depth + 1)})"
    if kind < 0.9 and depth < 2:  # Python takes ages over deeper ones
        return source.choice(["(?:{})", "({})", "{}"]).format(drawn(source, depth + 1)) + source.choice(["*", "+", "?", "*?", "{1,3}", "{2}", "{,2}", "+?", "??"])
    return source.choice(["(?={})", "(?!{})", "^{}", "{}$"]).format(drawn(source, depth + 1))


def noise(source: random.Random) -> str:
    return "".join(source.choice("a.b*+?()[]{}|\\d^$1,-:=!q_") for _ in range(source.randrange(1, 9)))


@pytest.fixture(scope="module")
def tool():
    running = TextTool()
    yield running
    running.close()


def by_python(pattern: str):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return [bool(re.fullmatch(pattern, name)) for name in NAMES]
        except re.error:
            return None


def test_matches_are_those_of_python(tool):
    source = random.Random(5)
    patterns = WRITTEN + [drawn(source) for _ in range(600)] + [noise(source) for _ in range(600)]
    refused = 0
    for pattern, answer in zip(patterns, tool.ask("regex", patterns=patterns, names=NAMES)["answers"], strict=True):
        expected = by_python(pattern)
        if isinstance(answer, list):
            assert answer == expected, pattern
        elif expected is not None:
            refused += 1
            assert re.search("not understood|possessive|times", answer), (pattern, answer)
    assert refused < 40


@pytest.mark.parametrize("pattern", REFUSED, ids=lambda pattern: pattern[:12])
def test_what_is_not_understood_is_refused(tool, pattern):
    [answer] = tool.ask("regex", patterns=[pattern], names=NAMES)["answers"]
    assert isinstance(answer, str) and REFUSED[pattern] in answer
