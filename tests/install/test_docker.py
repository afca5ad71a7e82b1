"""The Dockerfile without a daemon: its stages and pins fit this tree, its shell is a shell's, and the packages of the CPU image are enough to train."""
import json
import re
import subprocess
import sys

import pytest

from support.installed import SITE, good
from support.lockstep import LOCKSTEP, ROOT


sys.path.insert(0, str(ROOT / "tools/fresh"))
from dockerfile import parse  # noqa: E402


@pytest.fixture(scope="module")
def instructions():
    return parse((ROOT / "Dockerfile").read_text())


def test_stages_and_words(instructions):
    assert {word for word, _ in instructions} <= {"FROM", "ARG", "RUN", "WORKDIR", "COPY", "ENV", "ENTRYPOINT", "CMD"}
    stages = [match[1] for word, rest in instructions if word == "FROM" and (match := re.search(r" AS (\w+)$", rest))]
    assert {match[1] for _, rest in instructions if (match := re.search(r"--from=(\w+)", rest))} <= set(stages)
    assert json.loads(next(rest for word, rest in instructions if word == "ENTRYPOINT")) == ["lockstep"]
    for word, rest in instructions:
        if word == "RUN":
            subprocess.run(["sh", "-n", "-c", rest], check=True)
    built = next(rest for word, rest in instructions if word == "RUN" and "make " in rest and "apt-get" not in rest)
    assert re.search(r"^wheel:", (ROOT / "Makefile").read_text(), re.M) and built == "make wheel CUDA=${CUDA}"
    assert "npm" in next(rest for word, rest in instructions if "apt-get install" in rest), "or the image would serve a page that says that npm is missing"


def pinned(instructions):
    """name: version of the wheels that the CPU image installs by name."""
    line = next(rest for word, rest in instructions if "pip install" in rest)
    return dict(re.findall(r"([a-z0-9-]+)==([0-9.]+)", line))


def test_pins_are_those_of_the_build(instructions):
    ours = dict(re.findall(r"^([a-z0-9-]+)==([0-9.]+)", (ROOT / "tools/requirements.txt").read_text(), re.M))
    pins = pinned(instructions)
    assert set(pins) > {"torch"} and pins == {name: ours[name] for name in pins}


def test_packages_of_the_cpu_image_are_enough(instructions, tmp_path):
    """A folder with the files of those wheels and of no other of NVIDIA's: ranks train there."""
    for name in pinned(instructions):
        info = next(path for path in SITE.glob("*.dist-info") if re.sub(r"[-_.]+", "-", path.name.split("-")[0]).lower() == name)
        for line in (info / "RECORD").read_text().splitlines():
            file = line.split(",")[0].strip('"')
            if "/lib/" in file or file == "torch/version.py":
                (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / file).symlink_to(SITE / file)
    assert list(tmp_path.glob("nvidia/**/libcudart.so*")) and not list(tmp_path.glob("nvidia/**/libcublas*"))
    said = good(LOCKSTEP, "train", "-f", "nano", "--ranks", "2", "--threads", "1", "--max-steps", "1", "--output", tmp_path, "--name", "run", cwd=tmp_path,
                env={"LOCKSTEP_LIBTORCH": str(tmp_path / "torch"), "CUDA_VISIBLE_DEVICES": ""})
    assert "finished 1 step" in said
