"""The package as it lies in the checkout, with the programs of the build."""
import os
import sys

import pytest

from support.lockstep import LOCKSTEP, ROOT

sys.path.insert(0, str(ROOT / "python"))
os.environ["LOCKSTEP_PROGRAM"] = str(LOCKSTEP)
for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
    os.environ.pop(name, None)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
