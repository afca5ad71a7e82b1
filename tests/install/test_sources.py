"""Sources that are no checkout: unpacked from a tarball, in a folder of any name, with or without a commit. What is made of them says so, and is for all users."""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

from support.installed import good
from support.lockstep import BUILD, ROOT

CMAKE = ROOT / ".deps/bin/cmake"


def git(folder, *words):
    identity = ["-c", "user.name=x", "-c", "user.email=x@x", "-c", "safe.directory=*"]
    return subprocess.run(["git", *identity, "-C", str(folder), *words], check=True, capture_output=True, text=True).stdout.strip()


def build_id(source, out):
    good(CMAKE, f"-DSOURCE={source}", f"-DOUT={out}", "-P", source / "cmake/build_id.cmake")
    return dict(re.findall(r'#define LOCKSTEP_(\w+) "(.*)"', out.read_text()))


@pytest.fixture
def unpacked(tmp_path):
    """A small checkout, and what `git archive` packs of it, unpacked within another repository."""
    checkout, outer = tmp_path / "checkout", tmp_path / "öther repository"
    shutil.copytree(ROOT / "cmake", checkout / "cmake")
    shutil.copy(ROOT / ".gitattributes", checkout)
    (checkout / "src").mkdir()
    (checkout / "src/a.cpp").write_text("int a;\n")
    git(tmp_path, "init", "-q", "checkout")
    git(checkout, "add", "-A")
    git(checkout, "commit", "-qm", "first")
    git(tmp_path, "init", "-q", outer.name)
    git(outer, "commit", "-qm", "another", "--allow-empty")
    git(checkout, "archive", "-o", str(tmp_path / "sources.tar"), "HEAD")
    with tarfile.open(tmp_path / "sources.tar") as packed:
        packed.extractall(outer / "un packed", filter="data")
    return checkout, outer / "un packed"


def test_the_build_says_its_commit_or_that_there_is_none(unpacked, tmp_path):
    checkout, folder = unpacked
    commit = git(checkout, "rev-parse", "HEAD")[:12]
    assert build_id(checkout, tmp_path / "id.h") == {"COMMIT": commit, "BUILD": f"commit {commit}"}
    assert build_id(folder, tmp_path / "id.h")["BUILD"] == f"commit {commit}", "git archive put it there"
    (checkout / "src/a.cpp").write_text("int b;\n")
    assert build_id(checkout, tmp_path / "id.h")["BUILD"] == f"commit {commit}-dirty"
    if os.getuid() == 0:
        for path in [checkout, *checkout.rglob("*")]:
            os.chown(path, 1234, 1234)
        assert build_id(checkout, tmp_path / "id.h")["BUILD"] == f"commit {commit}-dirty", "root builds what somebody checked out"

    shutil.copy(ROOT / "cmake/archive.txt", folder / "cmake")  # as copied from a checkout without its .git
    first = build_id(folder, tmp_path / "id.h")
    assert first["COMMIT"] == "unknown" and re.fullmatch("of no commit, sources [0-9a-f]{12}", first["BUILD"])
    assert build_id(folder, tmp_path / "id.h") == first
    (folder / "src/a.cpp").write_text("int b;\n")
    assert build_id(folder, tmp_path / "id.h")["BUILD"] != first["BUILD"], "other sources"


def test_packages_of_sources_without_git_are_for_all_users(tmp_path):
    """By somebody whose files are his own, from a folder with an odd name, where there is no git."""
    source = tmp_path / "un packed 源"
    for room in ("tools", "python", "docs", "src/base"):
        shutil.copytree(ROOT / room, source / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "LICENSE", source)
    (source / ".deps").symlink_to(ROOT / ".deps")
    for path in source.rglob("*"):
        if path.is_file() and not path.is_symlink():
            os.utime(path, (1_600_000_000, 1_600_000_000))
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "objdump", "strip"):
        (tools / name).symlink_to(shutil.which(name))
    output = tmp_path / "out"
    for kind in ("wheel", "dist"):
        good("sh", "-c", 'umask 077; exec "$@"', "sh", sys.executable, source / "tools/package.py", kind, "--build", BUILD, "--output", output,
             env={"PATH": str(tools)})
    with zipfile.ZipFile(next(output.glob("*.whl"))) as wheel:
        assert {entry.date_time for entry in wheel.infolist()} == {(2020, 9, 13, 12, 26, 40)}
        modes = {entry.external_attr >> 16 & 0o777 for entry in wheel.infolist()}
    assert modes == {0o644, 0o755}
    with tarfile.open(next(output.glob("*.tar.gz"))) as packed:
        entries = packed.getmembers()
    assert {entry.mode for entry in entries} == {0o644, 0o755} and {(entry.uid, entry.gid, entry.mtime) for entry in entries} == {(0, 0, 1_600_000_000)}
    assert {path.stat().st_mode & 0o777 for path in output.iterdir()} == {0o644}


def test_names_of_folders_stay_whole_in_the_makefile(tmp_path):
    folder = tmp_path / "un packed ü"
    folder.mkdir()
    shutil.copy(ROOT / "Makefile", folder)
    commands = good("make", "-n", "train", "install", "wheel", "dist", "docs", "fuzz", "BUILD=my build", "PREFIX=/a prefix", cwd=folder)
    words = shlex.split(commands.replace("\\\n", " "), comments=True)
    assert {f"-DCMAKE_MAKE_PROGRAM={folder}/.deps/bin/ninja", "my build", "my build/bin/lockstep", "my build/bin/fuzz_tests", "/a prefix"} <= set(words)
    assert not {"my", "build", "prefix"} & set(words)


def test_installed_by_somebody_whose_files_are_his_own(tmp_path):
    """`sudo make install` under umask 077: folders, man pages and completions are for others too."""
    prefix = tmp_path / "a prefix"
    recipe = re.search(r"^install: build\n\t@(.*)$", (ROOT / "Makefile").read_text(), re.M)[1]
    command = recipe.replace("$(CMAKE)", str(CMAKE)).replace("$(BUILD)", str(BUILD)).replace("$(PREFIX)", str(prefix))
    good("sh", "-c", f"umask 077; {command}")
    for path in [prefix, *prefix.rglob("*")]:
        needed = 0o755 if path.is_dir() or path.parent == prefix / "bin" else 0o644
        assert path.stat().st_mode & needed == needed, f"{path} {path.stat().st_mode:o}"
    assert list(prefix.glob("share/man/man1/*")) and list(prefix.glob("share/*/completions/*"))
