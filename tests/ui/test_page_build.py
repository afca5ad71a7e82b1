"""How the page is built: its types hold, and a machine without npm gets a page that says how to have it."""
import os
import shutil
import subprocess
import sys

import pytest

from support.lockstep import BUILD, ROOT


def test_types_hold():
    source = BUILD / "web/source"
    if not (source / "node_modules/svelte-check").exists():
        pytest.skip("needs the page's packages (npm, then make build)")
    done = subprocess.run(["node", "node_modules/svelte-check/bin/svelte-check", "--tsconfig", "./tsconfig.json", "--fail-on-warnings"], cwd=source, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:]


def test_without_npm(tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "env", "dirname", "mkdir", "rm", "sed", "cp", "cat"):
        (tools / name).symlink_to(shutil.which(name))
    (tools / "python3").symlink_to(os.path.realpath(sys.executable))
    made = subprocess.run([ROOT / "tools/build_page.sh", tmp_path / "web", tmp_path / "deps"], env={**os.environ, "PATH": str(tools)}, capture_output=True, text=True, timeout=60)
    assert made.returncode == 0, made.stderr
    assert "npm was not found" in made.stdout
    page = (tmp_path / "web/dist/index.html").read_text()
    assert "sudo apt-get install npm" in page and "npm was not found" in page
    assert '"/index.html"' in (tmp_path / "web/embedded.cpp").read_text()
