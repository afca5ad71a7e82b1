"""The .bat files without a Windows: the line that cmd.exe forms, cut as Windows cuts it, run here with a wslpath that stands in for WSL's."""
import os
import re
import subprocess

import pytest

from support.lockstep import ROOT

SCRIPTS = ROOT / "scripts"
BATCHES = sorted(SCRIPTS.glob("*.bat"))


def test_batch_files_have_their_twin():
    for path in BATCHES:
        text = path.read_bytes()
        assert (SCRIPTS / f"{path.stem}.sh").exists() and f'"%~dp0wsl.sh" {path.stem}.sh %*\r\nexit /b %ERRORLEVEL%\r\n'.encode() in text
        assert text.count(b"\n") == text.count(b"\r\n"), "cmd.exe wants both"
        assert text.count(b"(") == text.count(b")"), "a block of cmd.exe"
    attributes = subprocess.run(["git", "check-attr", "eol", "--", "scripts/start-ui.sh", "Makefile"], cwd=ROOT, capture_output=True, text=True).stdout
    assert attributes.count("eol: lf") == 2, "git for Windows would give bash lines that end with a return"
    scripts = {path.stem for path in SCRIPTS.glob("*.sh")} - {"lockstep", "torchrun", "wsl"}
    assert scripts == {path.stem for path in BATCHES}


def cut(line):
    """A command line in the words that a program on Windows sees: quotes hold words together, and backslashes count only before them."""
    words, word, quoted, began, at = [], "", False, False, 0
    while at < len(line):
        slashes = len(re.match(r"\\*", line[at:])[0])
        after = line[at + slashes:at + slashes + 1]
        if slashes and after == '"':
            word, at, began = word + "\\" * (slashes // 2) + '"' * (slashes % 2), at + slashes + slashes % 2, True
        elif slashes:
            word, at, began = word + "\\" * slashes, at + slashes, True
        elif after == '"':
            quoted, began, at = not quoted, True, at + 1
        elif after in " \t" and not quoted:
            words, word, began, at = words + [word] if began else words, "", False, at + 1
        else:
            word, began, at = word + after, True, at + 1
    return words + [word] if began else words


def test_words_are_cut_as_windows_cuts_them():
    for words in (["a b", "c"], ['say "hi"', ""], ["C:\\a b\\", "\\\\server\\x"], ["$HOME", "50%", "'x'", "a;b|c", "*"]):
        assert cut(subprocess.list2cmdline(words)) == words
    assert cut(r'bash "exec \"$0\" \"$@\"" C:\x') == ["bash", 'exec "$0" "$@"', r"C:\x"]


@pytest.fixture
def windows(tmp_path):
    """A folder that stands for drive D, with the scripts in it; and a home whose shell finds wslpath."""
    drive, home = tmp_path / "mnt/d", tmp_path / "home"
    scripts = drive / "my müll & co/scripts"
    scripts.mkdir(parents=True)
    (home / "bin").mkdir(parents=True)
    (scripts / "wsl.sh").write_bytes((SCRIPTS / "wsl.sh").read_bytes())
    (home / ".bash_profile").write_text(f'PATH="{home}/bin:$PATH"\n')
    (home / "bin/wslpath").write_text('#!/bin/bash\nlast="${@: -1}"\ncase $last in [Dd]:*) last=${last:2}; printf "%s\\n" "$DRIVE${last//\\\\//}";; *) exit 1;; esac\n')
    (home / "bin/wslpath").chmod(0o755)
    return drive, home


def call(windows, path, typed):
    """What `"D:\\...\\NAME.bat" typed` starts, in the folder that it is called from."""
    drive, home = windows
    scripts = next(drive.glob("*/scripts"))
    (scripts / f"{path.stem}.sh").write_text('pwd; printf "%s\\0" "$@"; exit 7\n')
    line = next(line for line in path.read_text().splitlines() if line.startswith("wsl "))
    # cmd.exe puts in what %~dp0 and %* stand for as they are, once: a % in them is not looked at again.
    words = cut(line.replace("%*", typed).replace("%~dp0", f"D:\\{scripts.parent.name}\\scripts\\"))
    assert words[:2] == ["wsl", "--exec"], "without --exec a shell would read the words again"
    (drive / "called here/my").mkdir(parents=True, exist_ok=True)
    (drive / "called here/my/run.yaml").touch()
    done = subprocess.run(words[2:], cwd=drive / "called here", capture_output=True, text=True, env={**os.environ, "HOME": str(home), "DRIVE": str(drive)})
    assert done.returncode == 7, f"the status is that of the script: {done.stdout}{done.stderr}"
    folder, _, said = done.stdout.partition("\n")
    assert folder == str(drive / "called here")
    return said.split("\0")[:-1]


@pytest.mark.parametrize("path", BATCHES, ids=lambda path: path.stem)
def test_words_arrive_as_they_were_typed(windows, path):
    typed = r'--name "50% & more" "say \"hi\"" $HOME `date` * "" "a;b|c" C: no\such\file "x\y z" --prompt="a = b" 100%'
    assert call(windows, path, typed) == ["--name", "50% & more", 'say "hi"', "$HOME", "`date`", "*", "", "a;b|c", "C:", r"no\such\file", r"x\y z",
                                          "--prompt=a = b", "100%"]


def test_paths_of_windows_are_those_of_wsl(windows):
    drive, _ = windows
    typed = r'--config-path "D:\my runs\run.yaml" d:/x data.path=D:\text --output=D:\runs my\run.yaml data.path=my\run.yaml \\server\x E:\nowhere'
    assert call(windows, SCRIPTS / "train_multi_gpu.bat", typed) == [
        "--config-path", f"{drive}/my runs/run.yaml", f"{drive}/x", f"data.path={drive}/text", f"--output={drive}/runs", "my/run.yaml",
        "data.path=my/run.yaml", r"\\server\x", r"E:\nowhere"]
