"""The page on machines with GPUs, as their driver would tell of them: how busy they are in the frame, which of them a run uses, and one alone."""
import re

import pytest

import browser
from serving import TINY, Served
from support.lockstep import BUILD

NAMES = ("Enable Multi-GPU", "Backend", "Distributed Data", "Launcher", "Scale Learning Rate", "Placement", "Ranks")
TWO = "gpus 2\n*.name NVIDIA H100 80GB HBM3\n*.memory 85899345920\n0.used 64424509440\n1.used 8589934592\n0.utilization 98\n1.utilization 24\n"


@pytest.fixture
def with_gpus(tmp_path):
    """with_gpus(lines, visible): a page whose machine has these, and lets us see those."""
    made = []

    def start(lines: str, visible: str) -> Served:
        (tmp_path / "gpus").write_text(lines)
        made.append(Served(tmp_path, env={"LD_LIBRARY_PATH": str(BUILD / "stub_nvml"), "STUB_NVML": str(tmp_path / "gpus"), "CUDA_VISIBLE_DEVICES": visible}))
        return made[-1]

    yield start
    for page in made:
        page.close()


def test_the_frame_shows_how_busy_gpus_are(page, with_gpus, tmp_path):
    served = with_gpus(TWO, "1,0")
    page.goto(served.url + "/")
    meters = page.get_by_label("GPUs of this machine")
    meters.get_by_text("GPU 0: 24 % busy, 8.0 GiB of 80.0 GiB in use").wait_for(state="attached")  # as CUDA_VISIBLE_DEVICES counts
    meters.get_by_text("GPU 1: 98 % busy, 60.0 GiB of 80.0 GiB in use").wait_for(state="attached")
    assert "61 % busy" in " ".join(page.locator("header").inner_text().split()) and "2 × NVIDIA H100" in page.locator("header").inner_text()
    heights = meters.locator("i").evaluate_all("bars => bars.map(one => new DOMMatrix(getComputedStyle(one, '::after').transform).d)")
    assert heights == pytest.approx([0.24, 0.1, 0.98, 0.75])
    browser.picture(page, "gpus")
    assert browser.violations(page) == []
    (tmp_path / "gpus").write_text(TWO.replace("utilization 98", "utilization 3").replace("64424509440", "0"))
    meters.get_by_text("GPU 1: 3 % busy, 0 B of 80.0 GiB in use").wait_for(state="attached")
    page.set_viewport_size({"width": 390, "height": 844})
    browser.wait_until_it_fits(page)
    assert meters.is_visible()


def test_no_gpu_no_meter(page, served):
    page.goto(served.url + "/")
    page.get_by_text("no GPU").first.wait_for()
    page.wait_for_timeout(1500)
    assert page.get_by_label("GPUs of this machine").count() == 0


def test_which_gpus_and_how(page, with_gpus):
    served = with_gpus(TWO, "1,0")
    values = {key: value for key, value in TINY.items() if key not in ("trainer.target_device", "parallel.ranks", "parallel.threads")}
    page.goto(served.url + "/")
    page.evaluate("values => sessionStorage.setItem('new-run', JSON.stringify(values))", values)
    page.goto(served.url + "/new")
    panel = page.get_by_role("group", name="Multi-GPU")
    for label in NAMES:
        assert panel.get_by_label(re.compile(f"^{label}")).is_enabled(), label
    plan = page.get_by_label("Plan", exact=True)
    plan.get_by_text("rank 1 · GPU 1 NVIDIA H100 80GB HBM3").wait_for()
    # What others hold is seen before it is a rank's end.
    plan.get_by_role("img", name=re.compile("rank 1: .*, in use now 60.0 GiB")).wait_for()
    plan.get_by_role("img", name=re.compile("rank 0: .*, in use now 8.0 GiB")).wait_for()
    assert plan.get_by_text("Other programs hold memory").count() == 0, "there is room beside it"
    page.locator("#field-trainer-global_batch_size").fill("")
    page.locator("#field-trainer-batch_size").fill("600000")
    plan.get_by_text("Other programs hold memory that this needs: GPU 1 NVIDIA H100 80GB HBM3 (60.0 GiB).").wait_for()
    page.locator("#field-trainer-batch_size").fill("6")
    panel.get_by_label("GPU 0 · NVIDIA H100").uncheck()
    plan.get_by_text("trainer.distributed.gpu_ids=1").wait_for()
    assert panel.get_by_label("GPU 1 · NVIDIA H100").is_disabled(), "one is always chosen"
    panel.get_by_label("GPU 0 · NVIDIA H100").check()
    panel.get_by_label("Launcher").select_option("torchrun")
    plan.get_by_text("--nproc-per-node=2").wait_for()
    browser.picture(page, "multi-gpu")
    assert browser.violations(page) == []


def test_one_gpu_alone_is_greyed_out_with_the_reason(page, with_gpus):
    served = with_gpus("gpus 1\n*.name NVIDIA H100\n*.memory 85899345920\n", "0")
    page.goto(served.url + "/new")
    panel = page.get_by_role("group", name="Multi-GPU")
    panel.get_by_text("There is one GPU here, so there is nothing to spread over.").wait_for()
    for label in NAMES:
        assert panel.get_by_label(re.compile(f"^{label}")).is_disabled(), label
    page.get_by_text("Effective batch").first.wait_for()
    page.get_by_role("button", name="Start", exact=True, disabled=False).wait_for()  # once nothing is being planned
