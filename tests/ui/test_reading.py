"""What the page shows of runs that are long, many, of many ranks or gone: folders made in a moment, no training."""
import json
import re
import shutil

import pytest

import browser
from made_runs import add_lines, step_line, write_run


def numbers(page) -> str:
    return " ".join(page.locator(".numbers").inner_text().split())


def zoom_of(page):
    found = re.search(r"zoom=(\d+)-(\d+)", page.url)
    return (int(found[1]), int(found[2])) if found else None


def wait_for_zoom(page, holds) -> None:
    page.wait_for_function(f"() => {{ const zoom = new URLSearchParams(location.search).get('zoom')?.split('-').map(Number) ?? null; return {holds}; }}")


def test_a_zoom_is_of_the_curves_alone(page, served):
    """Steps, loss and speed are those that the run has come to, wherever its curves are looked at; it goes on growing meanwhile."""
    run = write_run(served.output / "long", 3000, events=[{"step": 500, "eval_loss": 9.0}, {"step": 1500, "eval_loss": 2.5}, {"step": 3000, "eval_loss": 1.25},
                                                           {"event": "checkpoint", "step": 1200, "path": "x"}, {"event": "started", "step": 1800, "time": "2026-01-01T00:03:00Z"}])
    page.goto(served.url + "/runs/long?zoom=1000-2000")
    page.get_by_text("┆ restart").wait_for()
    assert page.get_by_text("▴ checkpoint").is_visible()
    assert page.locator(".progress b").inner_text() == "3,000"
    assert "loss 2.0027" in numbers(page) and "evaluation 1.2500" in numbers(page)
    add_lines(run, step_line(3001, loss=7.5))
    page.wait_for_function("() => document.querySelector('.progress b').textContent === '3,001'")
    assert "loss 7.5000" in numbers(page) and zoom_of(page) == (1000, 2000)
    # Its curves are asked for within the zoom, from the first look on, and no evaluation of another stretch stands at their edge.
    asked = page.evaluate("() => performance.getEntriesByType('resource').filter(one => one.name.includes('/series')).map(one => one.name)")
    assert asked and all("from=1000&to=2000" in one for one in asked), asked
    legend = page.get_by_label("Loss", exact=True).locator(".legend").inner_text()
    assert "evaluation 2.50" in " ".join(legend.split()), legend
    page.set_viewport_size({"width": 390, "height": 844})
    browser.wait_until_it_fits(page)  # with a full legend
    page.set_viewport_size({"width": 1280, "height": 800})
    page.get_by_role("button", name="See all").click()
    assert zoom_of(page) is None


def test_charts_are_zoomed_by_keyboard(page, served):
    if not (served.output / "keyed").exists():
        write_run(served.output / "keyed", 1000)
    page.goto(served.url + "/runs/keyed")
    chart = page.get_by_role("img", name=re.compile("^Loss"))
    page.locator(".big .place:not(.empty-chart)").wait_for()  # there is nothing to zoom before its numbers have come
    chart.focus()
    page.keyboard.press("+")
    wait_for_zoom(page, "zoom && zoom[0] > 200 && zoom[1] < 800")
    page.wait_for_timeout(200)
    middle = zoom_of(page)
    page.keyboard.press("ArrowRight")
    wait_for_zoom(page, f"zoom && zoom[0] > {middle[0]} && zoom[1] > {middle[1]}")
    page.keyboard.press("0")
    wait_for_zoom(page, "zoom === null")
    scale = page.get_by_role("button", name="Logarithmic scale of Loss")
    assert scale.get_attribute("aria-pressed") == "false"
    page.keyboard.press("l")
    assert scale.get_attribute("aria-pressed") == "true"
    assert "MFU 41 %" in " ".join(page.get_by_label("Tokens per second", exact=True).inner_text().split())


def test_a_run_is_on_one_screen(page, served):
    """A laptop's: curves, ranks, GPUs and the end of what it wrote, with nothing to scroll for; what is long scrolls within its card."""
    run = write_run(served.output / "screen", 400, events=[{"event": "sample", "step": step, "prompt": "Once", "text": "upon a time " * 30} for step in range(10, 400, 10)])
    (run / "end.json").write_text(json.dumps({"status": "stopped", "exit_code": 0}))
    (run / "monitor").mkdir()
    gpus = [{"gpu": gpu, "ranks": [gpu], "name": "NVIDIA H100", "memory_bytes": 80 << 30} for gpu in (0, 1)]
    now = [{"gpu": gpu, "utilization": 0.97, "memory_bytes": 71 << 30, "power_watts": 640, "temperature": 60, "clock_mhz": 1700} for gpu in (0, 1)]
    (run / "monitor" / "machine-0.jsonl").write_text(json.dumps({"event": "machine", "host": "box", "gpus": gpus}) + "\n" + json.dumps({"seconds": 1, "gpus": now, "ranks": []}) + "\n")
    page.goto(served.url + "/runs/screen")
    page.get_by_label("GPUs of box").wait_for()
    page.get_by_text("upon a time").first.wait_for()
    for size in ({"width": 1280, "height": 800}, {"width": 1920, "height": 1080}):
        page.set_viewport_size(size)
        page.wait_for_timeout(300)
        browser.picture(page, f"screen-{size['width']}")
        assert page.evaluate("document.documentElement.scrollHeight <= innerHeight"), size
        heights = page.evaluate("() => [...document.querySelectorAll('canvas')].map(one => one.getBoundingClientRect().height)")
        assert min(heights) > 100 and page.locator("#panel").bounding_box()["height"] > 80, (size, heights)


def test_many_runs_are_found_by_their_words(page, served):
    for number in range(250):
        write_run(served.output / f"many-{number:03}", 3)
    page.goto(served.url + "/")
    rows = page.locator("tbody tr")
    page.get_by_text(re.compile("100 of 2\\d\\d, the newest first")).wait_for()
    assert rows.count() == 100
    page.get_by_role("button", name="Show more").click()
    page.wait_for_function("() => document.querySelectorAll('tbody tr').length > 240")
    page.get_by_label("Find runs").fill("many-12 killed")
    page.wait_for_function("() => document.querySelectorAll('tbody tr').length === 10")
    assert "find=many-12" in page.url
    browser.picture(page, "many")
    assert browser.violations(page) == []
    page.reload()
    page.wait_for_function("() => document.querySelectorAll('tbody tr').length === 10")
    page.get_by_label("Find runs").fill("nothing like it")
    page.get_by_text("is called “nothing like it”").wait_for()
    for folder in served.output.glob("many-*"):
        shutil.rmtree(folder)


def test_a_run_that_is_gone_leaves_the_others_compared(page, served):
    for name in ("left", "right"):
        write_run(served.output / name, 40)
    page.goto(served.url + "/compare?run=left&run=vanished&run=right&of=grad_norm&zoom=10-20")
    page.get_by_text("there is no run vanished").wait_for()
    table = page.get_by_label("Side by side")
    assert table.get_by_role("link").all_inner_texts() == ["left", "right"]
    assert page.get_by_label("What to compare").input_value() == "grad_norm"
    page.get_by_label("What to compare").select_option("step_seconds")
    assert "of=step_seconds" in page.url and "zoom=10-20" in page.url and page.url.count("run=") == 3
    edges = table.locator("tbody tr").first.locator("td.number").evaluate_all("cells => cells.map(one => getComputedStyle(one).textAlign)")
    assert edges == ["right", "right"]
    page.get_by_text("lockstep runs compare").wait_for()


def test_the_slowest_of_many_ranks_is_shown(page, served):
    write_run(served.output / "wide", 5, ranks=20, straggler={"rank": 18, "part": "forward", "seconds": 0.2, "share": 0.5})
    page.goto(served.url + "/runs/wide")
    ranks = page.get_by_label("Ranks", exact=True)
    ranks.get_by_text("rank 18").first.wait_for()
    assert ranks.locator(".rank").count() == 17
    ranks.get_by_role("button", name="All 20 ranks").click()
    assert ranks.locator(".rank").count() == 20


def test_a_log_is_read_from_its_end(page, served):
    run = write_run(served.output / "logged", 3)
    (run / "ranks").mkdir()
    (run / "ranks" / "0.log").write_text("".join(f"line {number}\n" for number in range(300)))
    page.goto(served.url + "/runs/logged?tab=log")
    page.get_by_text("line 299").wait_for()
    def left():
        return page.evaluate("() => { const panel = document.querySelector('#panel'); return panel.scrollHeight - panel.clientHeight - panel.scrollTop; }")
    page.wait_for_function("() => { const panel = document.querySelector('#panel'); return panel.scrollTop > 0 && panel.scrollHeight - panel.clientHeight - panel.scrollTop < 2; }")
    page.evaluate("document.querySelector('#panel').scrollTop = 40")
    with open(run / "ranks" / "0.log", "a") as file:
        file.write("and one more\n")
    page.get_by_text("and one more").wait_for()
    assert left() > 1000, "who has scrolled up stays there"


def test_codes_are_explained_where_they_stand(page, served):
    run = write_run(served.output / "dead", 3)
    report = "[launch] rank 1 of 2 died first, in step 3.\n  LS-605 Ended from outside: `lockstep explain LS-605` says more."
    (run / "end.json").write_text(json.dumps({"status": "failed", "exit_code": 6, "rank": 1, "error": "rank 1 died", "report": report, "resume": "", "seconds": 1,
                                              "last_step": 3, "time": "2026-01-01T00:00:01Z"}))
    page.goto(served.url + "/runs/dead")
    told = page.get_by_label("What went wrong")
    told.locator("summary").click()
    assert "Because" in told.inner_text() and "dmesg" in told.inner_text()
    assert browser.violations(page) == []
    page.goto(served.url + "/check")
    page.get_by_label("A message or a log").fill("step 3\nRuntimeError: CUDA error: out of memory\nAddress already in use\n")
    page.get_by_role("button", name="Explain").click()
    found = page.get_by_label("Explain", exact=True)
    found.get_by_text("LS-305").wait_for()
    assert "LS-401" in found.inner_text() and "line 2: RuntimeError" in found.inner_text()
    browser.picture(page, "explain")
    assert browser.violations(page) == []
    page.get_by_label("A message or a log").fill("all is well")
    page.get_by_role("button", name="Explain").click()
    found.get_by_text("Nothing in it is known here").wait_for()


def test_values_that_are_none_are_said(page, served):
    """Nothing that was typed is dropped or made into something else."""
    page.goto(served.url + "/plan")
    page.locator("form select").select_option("nano")
    for label, value, words in (("GPUs", "many", "--gpus"), ("Memory of each", "lots", "is no amount of memory"), ("More settings", "batch 2", "batch is no setting")):
        field = page.get_by_label(label, exact=True)
        before = field.input_value()
        field.fill(value)
        page.get_by_role("button", name="Plan", exact=True).click()
        page.get_by_role("alert").get_by_text(words).wait_for()
        field.fill(before)
    page.get_by_role("button", name="Plan", exact=True).click()
    page.get_by_text("As asked it fits into 80.0 GiB.").wait_for()
    page.get_by_text("lockstep plan -f nano --gpus 8 --memory 80GiB").wait_for()
    page.goto(served.url + "/chat")
    page.get_by_placeholder("a Hugging Face folder").fill(str(served.folder))
    page.get_by_label("Temperature").fill("warm")
    page.get_by_role("button", name="Load").click()
    page.get_by_role("alert").get_by_text("temperature must be a number").wait_for()


def test_paths_are_offered_and_none_leads_out(page, served):
    model = served.folder / "a model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "it's data.jsonl").write_text('{"text": "x"}\n')
    (served.folder / "out").symlink_to("/etc")
    page.goto(served.url + "/new")
    field = page.locator("#field-model-path")
    field.fill(str(served.folder / "a"))
    offered = page.locator("#field-model-path-paths option")
    page.wait_for_function("wanted => [...document.querySelectorAll('#field-model-path-paths option')].some(one => one.value === wanted)", arg=f"{model}/")
    assert offered.first.inner_text() == "a model"
    data = page.locator("#field-data-path")
    data.fill(f"{model}/")
    page.wait_for_function("() => [...document.querySelectorAll('#field-data-path-paths option')].some(one => one.value.endsWith(\"it's data.jsonl\"))")
    for climb in ("/", "/etc/", f"{served.folder}/../", f"{served.folder}/out/", "../", "/etc/pass", f"{served.folder}/out\x00/"):
        from urllib.parse import quote
        status, text, _ = served.request("GET", f"/api/paths?from={quote(climb)}")
        assert status in (200, 400) and b"passwd" not in text and (status == 400 or json.loads(text) == []), (climb, text)
    assert not any(one["path"].endswith("/out/") for one in served.json("GET", f"/api/paths?from={quote(str(served.folder) + '/')}"))
    # A path with spaces and quotes comes back whole from the command that is shown.
    page.goto(served.url + "/data")
    page.get_by_label("Data", exact=True).fill(str(model / "it's data.jsonl"))
    page.get_by_label("Tokenizer").fill("bytes")
    page.get_by_role("button", name="Inspect").click()
    page.get_by_label("The same as a command").or_(page.get_by_role("alert")).first.wait_for()
