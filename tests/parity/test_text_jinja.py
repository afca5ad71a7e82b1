"""Pieces of Jinja as templates use them, rendered by us and by the Jinja2 environment of transformers."""
import copy

import pytest
import text_tool
from jinja_cases import REFUSED, TABLE, every_value
from transformers.utils.chat_template_utils import _compile_jinja_template

VARIABLES = {
    "m": [{"role": "user", "content": "hi <b>x"}, {"role": "assistant", "content": "yo é"}, {"role": "user", "content": ""}],
    "d": {"b": 1, "a": 'x é "q" \n </script>', "c": [1, 2.5, None, True, {"z": {}}]},
    "e": {"items": [1, 2], "keys": 5},
}
MESSAGES = [{"role": "user", "content": "hi"}]

SNIPPETS = [
    r"""{{ true }} {{ none }} {{ [1,'a',none,true,2.5] }} {{ {'a': 1, 'b': [1,'x']} }}""",
    r"""{{ 'it\'s' }} {{ ["it's", 'say "hi"', 'both \' and "'] }}""",
    r"""{{ "a" ~ true ~ none ~ 1 ~ 1.0 ~ [1] }}""",
    r"""{{ 1e-5 }} {{ 0.00001 }} {{ 1e16 }} {{ 123456789.123 }} {{ 1/3 }} {{ 7//2 }} {{ -7//2 }} {{ -7 % 3 }} {{ 2**10 }} {{ 4/2 }}""",
    r"""{{ d|tojson }}""",
    r"""{{ d|tojson(indent=2) }}""",
    r"""{{ d|tojson(indent=4, sort_keys=true) }}""",
    r"""{{ d|tojson(separators=(',', ':')) }}""",
    r"""{{ d|tojson(ensure_ascii=true) }}""",
    r"""{{ [0.1, 1e-7, 1e20, 100.0, -0.0, 3]|tojson }}""",
    r"""{{ '<b>&"\'</b>'|tojson }}""",
    r"""{{ '  x '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'a,b,,c'.split(',') }}|{{ ' a  b '.split() }}|{{ 'a b c'.split(' ', 1) }}|{{ 'a b c'.rsplit(' ', 1) }}""",
    r"""{{ 'hello world'.title() }} {{ 'hello world'|title }} {{ "it's a dog's"|title }} {{ 'hELLO'.capitalize() }} {{ 'abc'.upper() }}""",
    r"""{{ 'abc'.startswith('a') }} {{ 'abc'.startswith(('x','a')) }} {{ 'abc'.endswith('c') }} {{ 'abcabc'.replace('b','X',1) }} {{ 'abcabc'.find('c') }} {{ 'abcabc'.rfind('c') }} {{ 'aXa'.count('a') }}""",
    r"""{{ 'a\nb\r\nc'.splitlines() }} {{ ','.join(['a','b']) }} {{ ['a','b']|join('-') }} {{ 'abc'|length }} {{ 'x'.isdigit() }} {{ '12'.isdigit() }}""",
    r"""{{ m[1:][0].role }} {{ m[::-1][0].role }} {{ (m[1:]|length) }} {{ (m + m)|length }} {{ m[1:]|list|length }}""",
    r"""{{ d.items()|list }} {{ d.keys()|list }} {{ d.values()|list }} {{ d.get('a') }} {{ d.get('zz') }} {{ d.get('zz', 5) }}""",
    r"""{{ d.a }} {{ d['a'] }} {{ d.zz is defined }} {{ d.zz }}|{{ zz is undefined }} {{ zz|default('q') }} {{ ''|default('q', true) }} {{ none|default('q') }}""",
    r"""{{ 'x' is string }} {{ d is mapping }} {{ d is iterable }} {{ 'x' is iterable }} {{ 5 is iterable }} {{ [1] is sequence }} {{ 'x' is sequence }} {{ d is sequence }} {{ 5 is number }} {{ true is number }} {{ 5 is integer }} {{ true is integer }} {{ 5.0 is float }} {{ true is boolean }} {{ none is none }} {{ false is false }} {{ true is true }} {{ 1 is true }}""",
    r"""{% for c in 'abc' %}{{ c }}-{% endfor %}""",
    r"""{% for k in d %}{{ k }} {% endfor %}{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k, v in d|items %}{{ k }};{% endfor %}{% for k, v in d|dictsort %}{{ k }}{% endfor %}""",
    r"""{% for x in [1,2,3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a','b') }} {% endfor %}""",
    r"""{% for x in [1,2,3] if x > 1 %}{{ loop.index }}{{ x }}{% else %}none{% endfor %}{% for x in [] %}{% else %}none{% endfor %}""",
    r"""{% for x in [1,2,3,4] %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}""",
    r"""{% set ns = namespace(a=1, b=[]) %}{% for x in [1,2] %}{% set ns.a = ns.a + x %}{% set ns.b = ns.b + [x] %}{% endfor %}{{ ns.a }}{{ ns.b }}""",
    r"""{% set x = 5 %}{% if true %}{% set x = 6 %}{% endif %}{{ x }}{% for i in [1] %}{% set x = 7 %}{% endfor %}{{ x }}""",
    r"""{% set x %}  hello {{ 1 }} {% endset %}[{{ x }}] {{ x is string }} {{ x|trim }}""",
    r"""{% macro f(a, b=2, c=none) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, c=3) }} {{ f(1, 5)|upper }}""",
    r"""{% macro f(a) %}{% if a > 0 %}{{ a }}{{ f(a - 1) }}{% endif %}{% endmacro %}{{ f(3) }}""",
    r"""{% set y = 3 %}{% macro f() %}{{ y }}{{ m|length }}{% endmacro %}{{ f() }}""",
    r"""{% macro g() %}<{{ caller() }}>{% endmacro %}{% call g() %}in{% endcall %}""",
    r"""{% filter upper %}abc{% endfilter %}""",
    r"""{{ 'a' if false }}|{{ 'a' if false else 'b' }}|{{ zz or 'dflt' }}|{{ (zz and 1) is defined }}""",
    r"""{{ m|map(attribute='role')|list }} {{ m|selectattr('role', 'equalto', 'user')|list|length }} {{ m|rejectattr('role','eq','user')|map(attribute='content')|join(',') }} {{ [1,2,3]|select('odd')|list }} {{ [3,1,2]|sort }} {{ [1,1,2]|unique|list }} {{ [1,2]|sum }} {{ [1,2]|max }} {{ [1,2]|first }} {{ [1,2]|last }} {{ [[1,2],[3]]|map('length')|list }} {{ ['a','b']|map('upper')|join }}""",
    r"""{{ m|map(attribute='zz', default='q')|list }} {{ m|selectattr('content')|list|length }} {{ m|groupby('role')|map('first')|list }}""",
    r"""{{ '3'|int + 1 }} {{ 'x'|int }} {{ 'x'|int(9) }} {{ '3.5'|float }} {{ 3.7|int }} {{ 3|string + 'a' }} {{ 3.14159|round(2) }} {{ 2.5|round }} {{ -3|abs }}""",
    r"""{{ [1,2,3,4,5]|batch(2)|list }} {{ [1,2,3,4,5]|slice(2)|list }} {{ d|length }} {{ d|count }} {{ d|list }} {{ d|first }}""",
    r"""{{ range(3)|list }} {{ range(1,6,2)|list }} {{ dict(a=1) }} {{ dict({'x': 2}, a=1) }} {{ {'a':1}.items()|list }}""",
    r"""{{ 1 < 2 < 3 }} {{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ [1,2] == [1,2] }} {{ {'a':1} == {'a':1} }} {{ not true }} {{ 1 and 2 }} {{ 0 or 'x' }}""",
    r"""{{ "a" "b" }} {{ 'a' * 3 }} {{ [1] * 2 }} {{ 'tab\tx\x41\u00e9' }} {{ '\\n' }} {{ "\"" }}""",
    r"""{{ (1, 2) }} {{ (1,) }} {{ () }} {{ [] }} {{ {} }}""",
    r"""{{ messages is defined }} {{ m[0]['content'] is string }} {{ m[0].content.split('x')[-1] }} {{ m[-1].role }} {{ (m|last).role }} {{ m|length - 1 }} {{ m[5] is defined }}""",
    r"""{% raw %}{{ raw }} {% generation %}{% endraw %}""",
    r"""a {{- ' b ' -}} c {{ '{%' }} {{ "%}" }}""",
    r"""{{ undefinedthing }}{{ undefinedthing is none }}{% if undefinedthing %}a{% else %}b{% endif %}{% for x in undefinedthing %}{% endfor %}{{ undefinedthing|length }}""",
    r"""{{ 'x' in undefinedthing }} {{ undefinedthing == none }} {{ undefinedthing|join }}""",
    r"""{% with a=1 %}{{ a }}{% endwith %}""",
    r"""{% set a, b = 1, 2 %}{{ a }}{{ b }}""",
    r"""{% set a = [1,2] %}{% set _ = a.append(3) %}{{ a }}""",
    r"""{% do [].append(1) %}""",
    r"""{{ m[0].items()|list }} {{ m[0]|dictsort }} {{ m[0]|tojson }}""",
    r"""{{ 'éa'|upper }} {{ 'ß'.upper() }} {{ 'İ'.lower() }} {{ '日本'|length }} {{ '👍🏽'|length }} {{ ['é\n', '\x07', '\\'] }} {{ {'é': "x\ty"} }}""",
    r"""{{ raise_exception('no way') }}""",
    r"""{{ undefinedthing.foo }}""",
    r"""{{ m[0].foo.bar }}""",
    r"""{{ 'a' + 1 }}""",
    r"""{{ zz() }}""",
    r"""{{ d.zz() }}""",
    r"""{{ 'x'|nofilter }}""",
    r"""{{ 1 is notest }}""",
    r"""{{ (d.zz)|tojson }}""",
    r"""{{ 3|tojson }} {{ 'é'|tojson }} {{ none|tojson }} {{ true|tojson }} {{ []|tojson(indent=2) }} {{ {}|tojson(indent=2) }} {{ [[], {}]|tojson(indent=2) }}""",
    r"""{{ x if x is defined else 'no' }} {{ loop is defined }}""",
    r"""{{ m[0].role | upper ~ '!' }} {{ -1|abs }} {{ 2 + 3 * 4 - 1 }} {{ (2 + 3) * 4 }} {{ 'a' ~ 1 + 2 }} {{ not 1 == 2 }} {{ 10 - 2 - 3 }} {{ 2 ** 3 ** 2 }}""",
    r"""{% for a in [1,2] recursive %}{{ a }}{% endfor %}{% for a in [[1,[2]],[3]] recursive %}{% if a is iterable %}({{ loop(a) }}){% else %}{{ a }}{% endif %}{% endfor %}""",
    r"""{{ [1,2,3].index(2) }} {{ [1,1].count(1) }} {{ (1,2).index(2) }}""",
    r"""{{ 5.0 }} {{ 5 / 1 }} {{ 1.10 }} {{ 1_000 }} {{ 0x10 }} {{ 1e3 }} {{ 12345678901234567890 }} {{ 3.0|int }} {{ 1e22 }} {{ 1.5e-10 }} {{ 5.0 ~ '' }}""",
    r"""{{ cycler('a','b').next() }} {% set j = joiner(',') %}{{ j() }}a{{ j() }}b""",
    r"""{{ namespace(a=1).a }} {{ namespace().zz is defined }} {% set n = namespace() %}{% set n.x = 1 %}{{ n.x }}""",
    r"""{{ m|tojson }}""",
    r"""{{ none.foo }}""",
    r"""{{ none['foo'] }}""",
    r"""{{ none.foo.bar }}""",
    r"""{{ 'str'.foo }} {{ 'str'['foo'] }} {{ 5.foo }} {{ [1].foo }} {{ [1]['x'] }}""",
    r"""{% set a = 1 -%}   b   {%- set c = 2 %}   d""",
    r"""{% if m[0].role == 'user' and m|length > 1 or false %}yes{% elif true %}elif{% endif %}""",
    r"""{{ {'a': {'b': 1}}.a.b }} {{ {'a b': 1}['a b'] }} {{ {1: 'x'}[1] }} {{ {'x': 1, **{'y': 2}} }}""",
    r"""{{ [1, 2, 3,] }} {{ [x for x in [1]] }}""",
    r"""{{ m[0].content if m[0].content is string else m[0].content[0].text }}""",
    r"""{{ strftime_now('%Y-%m-%d') }} {{ strftime_now("%d %b %Y") }} {{ strftime_now("%A %B %j") }} {{ strftime_now('%-d') }}""",
    r"""{{ 'abc' | string | length }} {{ x | default([]) | length }} {{ 'A' | lower | upper }}""",
    r"""{{ m | length > 1 and m[1]['role'] == 'assistant' }}""",
    r"""{{ '' if not d.zz else 'q' }} {{ d.zz is not defined or d.zz is none }} {{ d.a is not none and d.a }}""",
    r"""{% for mm in m %}{% set outer = loop %}{% for c in mm.content %}{{ outer.index }}{% endfor %}{% endfor %}""",
    r"""{% for mm in m %}{% if loop.previtem is defined and loop.previtem.role == 'user' %}P{% endif %}{% if not loop.last and loop.nextitem.role == 'user' %}N{% endif %}{% endfor %}""",
    r"""{% for mm in m %}{{ loop.changed(mm.role) }}{% endfor %}""",
    r"""{% for i in range(m|length - 1, -1, -1) %}{{ m[i].role }}{% endfor %}""",
    r"""{{ m|reverse|map(attribute='role')|join(' ') }} {% for x in m|reverse %}{{ x.role }}{% endfor %}""",
    r"""{{ 3 is odd }} {{ 3 is even }} {{ 6 is divisibleby(3) }} {{ 3 is eq 3 }} {{ 3 is equalto 3 }} {{ 'a' is in ['a'] }} {{ 'a' is not in ['a'] }} {{ 'a' in 'abc' }}""",
    r"""{{ 'abc'[0] }} {{ 'abc'[-1] }} {{ 'abcdef'[1:3] }} {{ 'abcdef'[::-1] }} {{ [1,2,3][::-1] }} {{ [1,2,3][1:] }} {{ [1,2,3][:-1] }} {{ [1,2,3][-2:] }} {{ [1,2,3,4][::2] }}""",
    r"""{{ 'a\nb'|indent(4) }}|{{ 'a\nb'|indent(2, true) }}|{{ 'a b c'|wordcount }} {{ '<b>x</b>'|striptags }} {{ '<'|escape }} {{ '<'|safe }} {{ 'a b'|urlencode }} {{ 'abc'|reverse }} {{ [1,2]|reverse|list }} {{ 'x'|center(5) }}|""",
    r"""{{ 'a{}b{x}'.format(1, x=2) }} {{ '%05.2f'|format(3.14159) }} {{ e['items'] }} {{ e.items()|list }}""",
    r"""{{ 'Hello'|replace('l', 'L') }} {{ 'Hello'|replace('l', 'L', 1) }} {{ ' a '|trim }} {{ 'xax'|trim('x') }} {{ 'a-b'|lower }}""",
    r"""{{ 'a b'.partition(' ') }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }} {{ '7'.zfill(3) }} {{ '-7'.zfill(4) }} {{ 'a'.ljust(3) }}|{{ 'a'.rjust(3,'.') }}|{{ 'ab'.center(5) }}|{{ 'abc'.center(6) }}|{{ 'aBc'.swapcase() }} {{ 'abc'.index('c') }}""",
    r"""{{ ' a b  c '.rsplit() }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b  c'.rsplit(None, 1) }} {{ 'abc'.rpartition('x') }} {{ 'a.b.c'.rpartition('.') }}""",
    '  {% if true %}\n  indented\n    {%- if true -%}\n    x\n    {%- endif +%}\n   y\n  {% endif %}\n  {#- comment -#}   z\n{%+ if true %}plus{% endif +%}\ntail\n\n',
    'a\n  {# c #}\nb\n  {{ 1 }}\n{% if true %}\nx\n{% endif %}\n\n',
    '{% macro f(x) -%}\n  v {{ x }}\n{%- endmacro -%}\n{{ f(1) }}\n{% set x = 1 %}\n\n{% set y %}\n a\n{% endset %}[{{ y }}]',
    "{{ 'a' }}\r\n{% if true %}\r\nx{% endif %}\r\n",
    '  {% generation %}  \n  a  \n  {% endgeneration %}  \nb',
    r"""x  {%- generation -%}  a  {%- endgeneration -%}  b""",
    '{%+ generation +%}\na\n{%- endgeneration +%}\nb',
    r"""{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}""",
    r"""{# {% generation %} #}{{ '{% generation %}' }}{% raw %}{% generation %}{% endraw %}""",
    r"""{% for i in [1,2] %}{% generation %}{{ loop.index }}{{ loop.last }}{% endgeneration %}{% endfor %}""",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer")
    text_tool.byte_level(300).save(str(path / "tokenizer.json"))
    return str(path)


def rendered(snippet):
    """jinja2's text; an exception where it refuses. What a snippet does to its variables must not reach the next one."""
    names = copy.deepcopy({"messages": MESSAGES, "tools": None, "documents": None, "add_generation_prompt": False, **VARIABLES})
    return _compile_jinja_template(snippet).render(**names)


def compare(tool, folder, snippet):
    """Nothing where both agree; "refused" where only we refuse; else the difference."""
    ours = tool.ask("render", folder=folder, template=snippet, messages=MESSAGES, variables=VARIABLES)
    try:
        expected = rendered(snippet)
    except Exception as refusal:
        return None if "error" in ours else f"{snippet!r}: jinja2 refuses ({refusal}), we write {ours['text']!r}"
    if "error" in ours:
        return "refused"
    return None if ours["text"] == expected else f"{snippet!r}: jinja2 writes {expected!r}, we {ours['text']!r}"


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_renders_as_jinja2(tool, folder, snippet):
    assert compare(tool, folder, snippet) is None


def test_a_table_of_pieces_renders_as_jinja2(tool, folder):
    """Equal or refused; and what we alone refuse is known: addresses in memory, slices of what has none, and the like."""
    answers = {snippet: compare(tool, folder, snippet) for snippet in TABLE}
    assert [answer for answer in answers.values() if answer not in (None, "refused")] == []
    assert {snippet for snippet, answer in answers.items() if answer == "refused"} <= REFUSED


def test_every_value_under_every_operation_renders_as_jinja2(tool, folder):
    answers = [compare(tool, folder, snippet) for snippet in every_value()]
    assert [answer for answer in answers if answer not in (None, "refused")] == []
    assert answers.count("refused") < 0.02 * len(answers)
