"""Docs cannot rot: quotes equal the code, and every path, flag, setting and make target that a page names exists."""
import array
import atexit
import functools
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

import pytest

from support.lockstep import LOCKSTEP, ROOT

GENERATED = {"docs/errors.md"}  # holds mistakes on purpose; made and compared by tools/make_docs.py
PAGES = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "docs/*.md", "examples/**/*.md")
    for path in ROOT.glob(pattern)
    if str(path.relative_to(ROOT)) not in GENERATED
)
SECTIONS = "model|trainer|lora|data|parallel|checkpoint|monitor|launch"
FLAGS_OF_OTHERS = {"--shm-size", "--lora-modules"}  # of Docker and vLLM, named as advice
FLAGS_OF_SCRIPTS = {flag for script in (ROOT / "bench").glob("*.py") for flag in re.findall(r'add_argument\("(--[a-z-]+)"', script.read_text())}


def text_of(page):
    return (ROOT / page).read_text()


def fenced(text):
    """(line above the fence, content) of every fenced block."""
    return re.findall(r"^([^\n]*)\n```\w*\n(.*?)^```$", text, re.M | re.S)


def code_of(page):
    """All that a page sets as code: fenced blocks and indented lines, line by line, and what stands in backticks."""
    text = text_of(page)
    lines = [line for _, content in fenced(text) for line in content.splitlines()]
    rest = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    lines += [line.strip() for line in re.findall(r"^    +\S.*$", rest, re.M)]
    return lines + re.findall(r"`([^`\n]+)`", rest)


@functools.cache
def ask(*args):
    return subprocess.run([LOCKSTEP, *args], cwd=ROOT, capture_output=True, text=True, timeout=60)


@functools.cache
def model_folder():
    """What DIR stands for in commands: a folder with the config.json of a small Llama."""
    folder = tempfile.mkdtemp(prefix="lockstep-docs-")
    atexit.register(shutil.rmtree, folder)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
              "num_attention_heads": 4, "vocab_size": 1000, "max_position_embeddings": 131072}
    (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
    return folder


@functools.cache
def help_of(*verb):
    """The flags that a verb's help names."""
    return set(re.findall(r"--[a-z][a-z-]*", ask(*verb, "--help").stdout.replace("--[no-]", "--"))) | {"--help"}


# ---- quotes

def quotes():
    found = []
    for page in PAGES:
        for above, content in fenced(text_of(page)):
            if mark := re.fullmatch(r"<!-- quote: (\S+)(?: (\w+))? -->", above):
                found.append((page, mark[1], mark[2], content))
    return found


def without_blank(lines):
    return [line for line in lines if line.strip()]


@pytest.mark.parametrize("page,source,mark,content", quotes(), ids=lambda value: str(value)[:60])
def test_quote_is_in_the_source(page, source, mark, content):
    code = (ROOT / source).read_text()
    at = 0
    for piece in re.split(r"^ *\.\.\.\n", content, flags=re.M):
        found = code.find(piece, at)
        assert found >= 0, f"{page} quotes what {source} does not say (any more):\n{piece}"
        assert found == 0 or code[found - 1] == "\n", f"{page}: a quote of {source} starts within a line"
        at = found + len(piece)


def test_one_step_quotes_the_whole_step():
    region = re.search(r"// \[one_step:begin\]\n(.*?)// \[one_step:end\]", (ROOT / "src/rank/train/train_step.cpp").read_text(), re.S)
    quoted = [line for page, _, mark, content in quotes() if page == "docs/one_step.md" and mark == "one_step" for line in content.splitlines()]
    assert without_blank(quoted) == without_blank(region[1].splitlines())


# ---- paths

@pytest.mark.parametrize("page", PAGES)
def test_paths_exist(page):
    text = text_of(page)
    missing = [link for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text) if ":" not in link and not (ROOT / page).parent.joinpath(link).exists()]
    named = re.findall(r"(?<![\w/.-])((?:src|docs|tests|tools|models|examples|bench|cmake|scripts)/[\w./*-]*)", text)
    for path in {name.rstrip(".") for name in named}:
        if not re.search(r"\b(NAME|FILE)\b", path) and not list(ROOT.glob(path.rstrip("/"))):
            missing.append(path)
    # Files of the sources that a page names without their folder.
    for name in set(re.findall(r"`([a-z_]+\.(?:cpp|cu|cuh|h|py|sh))`", text)):
        if not [hit for folder in ("src", "tools", "tests", "examples") for hit in (ROOT / folder).rglob(name)]:
            missing.append(name)
    assert not missing


@pytest.mark.parametrize("page", PAGES)
def test_no_paths_of_one_machine(page):
    assert not re.findall(r"(?<![\w.])/(?:work|root|home|tmp|mnt)/\S*", text_of(page))


def test_readme_leads_to_every_page():
    linked = set(re.findall(r"\]\((docs/\w+\.md)\)", text_of("README.md")))
    assert linked == {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}


# ---- commands, flags and settings

def commands():
    """(page, verb, arguments) of every `lockstep ...` that stands as code."""
    found = []
    for page in PAGES:
        for line in code_of(page):
            if line.startswith(("from lockstep", "import lockstep")):  # Python
                continue
            words = shlex.split(line, comments=True) if line.count("'") % 2 == 0 and line.count('"') % 2 == 0 else line.split()
            for i, word in enumerate(words):
                if word.split("/")[-1] == "lockstep" and i + 1 < len(words):
                    arguments = [w for w in words[i + 2:] if w != "..." and not w.startswith("[")]
                    found.append((page, words[i + 1], tuple(arguments)))
                    break
    return sorted(set(found))


@pytest.mark.parametrize("page,verb,arguments", commands(), ids=lambda value: value if isinstance(value, str) else " ".join(value)[:60])
def test_command_is_understood(page, verb, arguments):
    if verb.startswith("-"):
        assert verb in ("--help", "--version")
        return
    assert verb in re.findall(r"lockstep (\w+)", ask("--help").stdout), f"{page}: lockstep has no verb {verb}"
    if verb == "train" or (verb, *arguments[:1]) == ("config", "show"):
        stand_ins = {"FILE": "models/nano.yaml", "model.vocab_size=N": "model.vocab_size=1000", "DIR": model_folder()}
        done = ask("config", "show", *[stand_ins.get(word, word) for word in arguments if word != "show"])
        assert done.returncode == 0, f"{page}: lockstep {verb} {' '.join(arguments)}\n{done.stderr}"
    elif (verb, *arguments[:1]) == ("config", "explain"):
        for key in arguments[1:]:
            assert key in ("KEY", "FLAG", "SECTION", "|") or ask("config", "explain", key).returncode == 0, f"{page}: {key}"
    elif verb == "config":
        assert not arguments or arguments[0] in re.findall(r"lockstep config (\w+)", ask("config", "--help").stdout), f"{page}: {arguments}"
    else:
        of = (verb, *arguments[:1]) if verb in ("data", "runs") else (verb,)
        unknown = {word.split("=")[0] for word in arguments if word.startswith("--")} - help_of(*of)
        assert not unknown, f"{page}: lockstep {verb} has no {unknown}"


@pytest.mark.parametrize("page", PAGES)
def test_flags_exist(page):
    """Flags in backticks that stand without their command."""
    known = help_of("train") | help_of("check") | help_of("launch") | help_of("completion") | help_of("bench", "step") | help_of("generate") | help_of("chat") | help_of("export") | help_of("merge") | help_of("data", "tokenize") | help_of("data", "train-tokenizer") | help_of("watch") | help_of("runs", "list") | help_of("runs", "plot") | {"--version", "--no-distributed-data-loading"} | FLAGS_OF_OTHERS | FLAGS_OF_SCRIPTS
    known |= help_of("config", "import")
    spans = [span for span in re.findall(r"`(-[^`\n]*)`", text_of(page))]
    unknown = {flag for span in spans for flag in re.findall(r"(?<![\w-])--[a-z][a-z_-]*", span)} - known
    # Spellings that the help leaves out: other names of a flag, or of -f.
    unknown = {flag for flag in unknown if ask("config", "explain", flag).returncode != 0 and ask("config", "show", flag, "models/nano.yaml").returncode != 0}
    assert not unknown - {"--no-flag", "--flag"}  # configuration.md speaks of flags as such


@pytest.mark.parametrize("page", PAGES)
def test_settings_and_variables_exist(page):
    everything = " ".join(code_of(page))
    keys = set(re.findall(rf"(?<![\w./-])((?:{SECTIONS})\.[a-z_0-9]+(?:\.[a-z_0-9]+)*)(?![\w(])", everything))  # not calls in Python
    files = {key for key in keys if key.rsplit(".")[-1] in ("md", "h", "cpp", "json", "yaml", "yml", "safetensors")}
    tensors = {key for key in keys if key.startswith("model.layers.") and key.endswith(".weight")}
    assert not {key for key in keys - files - tensors if ask("config", "explain", key).returncode != 0}
    known = set(re.findall(r"\bLOCKSTEP_[A-Z_]+\b", ask("train", "--help").stdout + ask("ui", "--help").stdout))
    for name in set(re.findall(r"\bLOCKSTEP_[A-Z_]+\b", text_of(page))) - {"LOCKSTEP_TEST_FAULT", "LOCKSTEP_"}:
        # The variables of the program itself are in its help; the others are settings.
        assert name in known or re.fullmatch("LOCKSTEP_(" + SECTIONS.upper() + ")_[A-Z_]+", name), f"{page}: {name}"


def test_make_targets_exist():
    rules = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.M))
    variables = set(re.findall(r"^([A-Z_]+) *\?=", (ROOT / "Makefile").read_text(), re.M))
    missing = set()
    for page in PAGES:
        for line in code_of(page):
            if words := re.findall(r"(?:^|&& |`)make((?: +[\w=-]+)+)", line):
                for word in words[0].split():
                    name, assigned = word.split("=")[0], "=" in word
                    if name not in (variables if assigned else rules):
                        missing.add(f"{page}: make {word}")
    assert not missing


# ---- the examples

def test_own_text_example_writes_tokens(tmp_path):
    source = ROOT / "README.md"
    done = subprocess.run([sys.executable, ROOT / "examples/own-text/to_bin.py", source, tmp_path / "out.bin"], capture_output=True, text=True, check=True)
    tokens = array.array("I", (tmp_path / "out.bin").read_bytes())
    count, vocabulary = map(int, re.findall(r"\d+", done.stdout))
    assert tokens.itemsize == 4 and len(tokens) == count and max(tokens) == vocabulary - 1


def test_readme_shows_a_run_of_today():
    """The plan in the README's capture is what the program prints now, but for the name of the run; tests/docs/capture.py renews it."""
    shown = next(content for above, content in fenced(text_of("README.md")) if above.startswith("<!-- capture:")).splitlines()
    plan = ask("train", "-f", "models/nano.yaml", "--device", "cpu", "--ranks", "2", "--dry-run").stdout.splitlines()
    stable = [line for line in plan if not re.match(r" +(run folder|devices) |  note:|dry run", line)]
    assert len(stable) > 5 and set(stable) <= set(shown)
    losses = [float(loss) for loss in re.findall(r"^step +\d+/\d+ +loss +([\d.]+)", "\n".join(shown), re.M)]
    assert len(losses) > 5 and losses[-1] < losses[0] / 2


def test_pictures_are_made_and_shown():
    """Every picture that a page shows is one that tests/docs/pictures.py makes, and none lies about unseen."""
    shown = {name for page in PAGES for name in re.findall(r"!\[[^\]]+\]\((?:docs/)?pictures/([\w-]+)\.png\)", text_of(page))}
    makes = set(re.findall(r'"([\w-]+)": \w+_picture', (ROOT / "tests/docs/pictures.py").read_text()))
    assert shown == makes == {path.stem for path in (ROOT / "docs/pictures").iterdir()}


def test_contributing_is_short():
    assert len(text_of("CONTRIBUTING.md").splitlines()) < 100
