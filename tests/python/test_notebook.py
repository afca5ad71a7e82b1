"""The notebook of examples/, in a real kernel: the bar and the curve are under the cell, and move; an interrupted cell leaves a saved run."""
import asyncio
import os
import re
import xml.etree.ElementTree as xml

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from support.installed import SMALL
from support.lockstep import ROOT

NOTEBOOK = ROOT / "examples/python/train.ipynb"


@pytest.fixture(autouse=True)
def kernel(monkeypatch, tmp_path):
    for name, value in {**SMALL, "PYTHONPATH": str(ROOT / "python"), "JUPYTER_DATA_DIR": str(tmp_path / "jupyter"), "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
                        "IPYTHONDIR": str(tmp_path / "ipython")}.items():
        monkeypatch.setenv(name, value)


def outputs(cell, kind):
    return [output["data"][kind] for output in cell.outputs if kind in output.get("data", {})]


def test_the_notebook_runs_and_shows_its_progress(tmp_path):
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs are not kept in the repository"
    done = NotebookClient(notebook, timeout=280, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    train, write = (cell for cell in done.cells if cell.cell_type == "code")
    bar, = outputs(train, "text/html")
    assert '<progress value="40" max="40"' in bar and "step 40/40" in bar and re.search(r"loss \d+\.\d{4}, tokens/s \d+", bar), bar
    curve = xml.fromstring(outputs(train, "image/svg+xml")[0])
    points = next(node for node in curve.iter() if node.tag.endswith("polyline")).get("points").split()
    assert len(points) == 40
    assert "TrainOutput(global_step=40" in outputs(train, "text/plain")[-1]
    assert outputs(write, "text/plain")[-1].endswith("40]")
    assert not [output for cell in (train, write) for output in cell.outputs if output.get("name") == "stderr"], "nothing is printed beside the bar"


def test_an_interrupted_cell_saves_its_run(tmp_path):
    """As the stop button of a notebook does."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(
        "import lockstep, pathlib\n"
        "def tell(line):\n"
        "    pathlib.Path('step').write_text(str(line['step']))\n"
        "trainer = lockstep.Trainer('models/nano.yaml', args={'output_dir': 'run', 'max_steps': 100000, 'logging_steps': 1}, callbacks=[tell])\n"
        "trainer.train()")])
    client = NotebookClient(notebook, timeout=280, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}})

    async def press_stop():
        while not (tmp_path / "step").exists():
            await asyncio.sleep(0.05)
        await client.km.interrupt_kernel()

    async def both():
        stop = asyncio.ensure_future(press_stop())
        try:
            await client.async_execute()
        finally:
            await stop

    with pytest.raises(CellExecutionError, match="KeyboardInterrupt"):
        asyncio.run(both())
    assert [path for path in (tmp_path / "run/checkpoints").iterdir() if (path / "manifest.json").exists()]
    assert not (tmp_path / "run/lease").exists() and os.listdir(tmp_path / "run/ranks")
