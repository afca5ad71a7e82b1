"""Paths that the system refuses: the words say what stands in the way and where, nothing is called a bug, and no folder is left behind."""
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from support import another_user

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOCKSTEP = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", ROOT / "build")) / "bin" / "lockstep"
as_root = pytest.mark.skipif(another_user.IMPOSSIBLE, reason="another user needs root, unshare and setpriv")


def refused(*words, cwd, prefix=()):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LOCKSTEP_")}
    done = subprocess.run([*prefix, LOCKSTEP, *map(str, words)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode in (2, 4, 5), f"{done.returncode}: {done.stderr}"
    return done.stderr


def train(*words):
    return ["train", "-f", ROOT / "models/nano.yaml", "--device", "cpu", "--ranks", "1", *words]


@pytest.mark.parametrize("name", [["--name", "run"], []], ids=["named", "unnamed"])
def test_a_file_in_place_of_a_folder_is_named(tmp_path, name):
    (tmp_path / "file").write_text("x")
    before = "Not a directory: file is a file, and a folder is needed there. Choose a folder you may write to with --output."
    for output in ("file", "file/deep/er"):
        assert before in refused(*train("--output", output, *name), cwd=tmp_path)
    text = refused(*train("--output", "a/b/c", "--name", "run", "trainer.checkpoint_dir=file/x"), cwd=tmp_path)
    assert f"Not a directory: {tmp_path}/file is a file" in text
    assert not (tmp_path / "a").exists(), "folders around the run folder go too"
    (tmp_path / "run").mkdir()
    (tmp_path / "run/checkpoints").write_text("x")
    text = refused(*train("--output", ".", "--name", "run"), cwd=tmp_path)
    assert "cannot write to ./run/checkpoints: Not a directory: ./run/checkpoints is a file" in text, "not when the first one is due"
    text = refused(*train("--output", "a/b", "--name", "run", "trainer.checkpoint_dir=a/b/run"), cwd=tmp_path)
    assert "trainer.checkpoint_dir a/b/run is the run folder itself" in text
    assert not (tmp_path / "a").exists()


def test_names_that_no_disk_takes_and_links_in_a_circle(tmp_path):
    (tmp_path / "circle").symlink_to("circle")
    for output, words in (("x" * 300, "File name too long"), ("circle", "Too many levels of symbolic links")):
        for name in (["--name", "run"], []):
            assert words in refused(*train("--output", output, *name), cwd=tmp_path)
        assert words in refused("ui", "--output", output, "--port", "0", cwd=tmp_path)


@as_root
def test_another_users_folders_are_named_and_not_called_missing():
    with tempfile.TemporaryDirectory() as folder:  # tmp_path lies in a folder of this user alone
        pathlib.Path(folder).chmod(0o755)
        look_from_outside(pathlib.Path(folder))


def look_from_outside(tmp_path):
    hidden = tmp_path / "hidden"
    (hidden / "run").mkdir(parents=True)
    (hidden / "run/config.yaml").write_text("{}")
    hidden.chmod(0o700)
    (tmp_path / "shared/checkpoints").mkdir(parents=True)
    (tmp_path / "shared").chmod(0o777)
    may_not = f"Permission denied: user nobody may not enter {hidden}"
    cases = [
        (train("--output", hidden, "--name", "run"), may_not),
        (train("--output", hidden / "run", "--name", "run"), may_not),
        (train("--output", tmp_path / "new", "--name", "run"), f"Permission denied: user nobody may not write to {tmp_path}"),
        (train("--output", tmp_path, "--name", "shared"), "shared/checkpoints: Permission denied: user nobody may not write to it"),
        (["train", "-f", hidden / "run/config.yaml"], may_not),
        (train("--output", "/tmp", "--data", hidden / "x.txt", "--dry-run"), may_not),
        (["config", "show", "--model", hidden / "model"], may_not),
        (["watch", hidden / "run"], may_not),
        (["ask", hidden / "run", "save"], may_not),
        (["runs", "--output", hidden], "may not read it"),
        (["generate", "--run", hidden / "run", "--prompt", "x"], may_not),
        (["generate", "--model", hidden / "model", "--prompt", "x"], may_not),
        (["export", "--run", hidden / "run", "--output", "/tmp/none"], may_not),
        (["data", "tokenize", "--tokenizer", hidden / "run", "--output", "/tmp/none.bin", "--input", hidden / "x.txt"], may_not),
    ]
    for words, says in cases:
        assert says in refused(*words, cwd="/", prefix=another_user.words_before()), words


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("unshare"), reason="a read-only disk needs root and unshare")
def test_a_read_only_disk(tmp_path):
    (tmp_path / "disk").mkdir()
    prefix = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o ro none {tmp_path}/disk && exec "$@"', "sh"]
    for output in ("disk", "disk/deep"):
        text = refused(*train("--output", output, "--name", "run"), cwd=tmp_path, prefix=prefix)
        assert "Read-only file system. Choose a folder you may write to with --output." in text
