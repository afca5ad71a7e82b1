"""Completions in real shells: bash, zsh and fish are asked what they offer."""
import os
import shutil
import subprocess
import time

import pytest

from support.lockstep import LOCKSTEP

# What is typed behind `lockstep`, and all that is offered for its last word.
OFFERS = [
    (["tr"], {"train"}),
    (["che"], {"check"}),
    (["help", "exp"], {"export", "explain"}),
    (["train", "--dev"], {"--device"}),
    (["train", "--device", ""], {"auto", "cuda", "cpu"}),
    (["train", "--sync-backend", "n"], {"nccl"}),
    (["train", "--no-distributed-d"], {"--no-distributed-data-loading"}),
    (["bench", "co"], {"comm"}),
    (["bench", "comm", "--si"], {"--sizes"}),
    (["config", "exp"], {"explain"}),
    (["data", "tok"], {"tokenize"}),
    (["explain", "LS-40"], {f"LS-40{i}" for i in range(1, 10)}),
    (["config", "explain", "LS-40"], set()),
    (["completion", "f"], {"fish"}),
    (["ask", "run", "sa"], {"save", "sample"}),
    (["ask", "fir"], {"first"}),
    (["train", "-f", "mod"], {"model.yaml"}),
]


def run(*command, **more):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120, **more)


class Bash:
    def __init__(self, folder):
        self.script = folder / "bash"

    def offers(self, *words):
        code = f'source {self.script}; COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); _lockstep; printf "%s\\n" "${{COMPREPLY[@]}}"'
        done = run("bash", "-uc", code, "bash", "lockstep", *words, cwd=self.script.parent / "here")
        assert done.returncode == 0, done.stderr
        return done.stdout.split()


class Fish:
    def __init__(self, folder):
        self.script = folder / "fish"

    def offers(self, *words):
        done = run("fish", "--no-config", "-c", f"source {self.script}; complete -C 'lockstep {' '.join(words)}'", cwd=self.script.parent / "here")
        assert done.returncode == 0 and not done.stderr, done.stderr
        return [line.split("\t")[0] for line in done.stdout.splitlines()]


class Zsh:
    """One shell at a terminal, with the script in its fpath; what compadd is given for a Tab goes into a file."""

    SETUP = r"""
fpath=($HOME/functions $fpath)
autoload -U compinit && compinit -u -D
compadd() {
  local -a hits
  if [[ " $* " != *' -'[OAD]' '* ]]; then
    builtin compadd -O hits "$@"
    print -rl -- $hits >>$OFFERED
  fi
  builtin compadd "$@"
}
offer() { : >$OFFERED; zle complete-word; print -r -- "end of offers" >>$OFFERED; zle kill-whole-line }
zle -N offer
bindkey '^I' offer
PS1='ready> '
"""

    def __init__(self, folder):
        import pexpect
        (folder / "functions").mkdir()
        (folder / "zsh").rename(folder / "functions/_lockstep")
        (folder / "setup").write_text(self.SETUP)
        self.offered = folder / "offered"
        environment = {**os.environ, "HOME": str(folder), "OFFERED": str(self.offered), "TERM": "dumb", "PATH": f"{LOCKSTEP.parent}:{os.environ['PATH']}"}
        self.shell = pexpect.spawn("zsh", ["-f", "-i"], env=environment, encoding="utf-8", timeout=60, cwd=str(folder / "here"))
        self.shell.sendline(f"source {folder / 'setup'}")
        self.shell.expect("ready> ")

    def offers(self, *words):
        self.offered.write_text("")
        self.shell.send(f"lockstep {' '.join(words)}\t")
        deadline = time.monotonic() + 60
        while not self.offered.read_text().endswith("end of offers\n"):
            assert time.monotonic() < deadline, "zsh does not answer"
            time.sleep(0.01)
        return self.offered.read_text().splitlines()[:-1]

    def close(self):
        self.shell.close(force=True)


@pytest.fixture(scope="module", params=[Bash, Zsh, Fish], ids=["bash", "zsh", "fish"])
def shell(request, tmp_path_factory):
    kind, name = request.param, request.param.__name__.lower()
    if not shutil.which(name):
        pytest.skip(f"{name} is missing (Debian: {name})")
    folder = tmp_path_factory.mktemp(name)
    (folder / "here/runs/first").mkdir(parents=True)
    (folder / "here/model.yaml").touch()
    done = run(LOCKSTEP, "completion", name)
    assert done.returncode == 0, done.stderr
    (folder / name).write_text(done.stdout)
    made = kind(folder)
    yield made
    if isinstance(made, Zsh):
        made.close()


@pytest.mark.parametrize("words,offers", OFFERS, ids=[" ".join(words) for words, _ in OFFERS])
def test_a_shell_offers(shell, words, offers):
    assert set(shell.offers(*words)) == offers


def test_every_verb_and_flag_is_offered(shell):
    verbs = {line.split()[1] for line in run(LOCKSTEP, "--help").stdout.splitlines() if line.startswith("  lockstep ") and line.split()[1].islower()}
    assert verbs <= {*shell.offers(""), *shell.offers("--")}
    offered = set(shell.offers("train", "--"))
    for line in run(LOCKSTEP, "train", "--help").stdout.splitlines():
        if line.startswith("  --") and "[no-]" not in line:
            assert line.split()[0].rstrip(",") in offered, line


def test_an_unknown_shell():
    done = run(LOCKSTEP, "completion", "tcsh")
    assert done.returncode == 2 and "bash, zsh and fish" in done.stderr
