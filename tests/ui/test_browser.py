"""The page as a person uses it: Chromium, the real program, real runs of 2 ranks on the CPU."""
import json
import os
import re
import signal
import subprocess
import time

import browser
from serving import TINY

AXOLOTL = """base_model: {model}
datasets:
  - path: chat.jsonl
    type: chat_template
adapter: lora
lora_r: 16
lora_alpha: 32
learning_rate: 0.0002
micro_batch_size: 2
gradient_accumulation_steps: 4
num_epochs: 2
flash_attention: true
"""


def fill_tiny(page, served, **changes):
    """The values of a tiny run, as one who has typed them before: the form keeps them in its tab."""
    page.goto(served.url + "/")
    values = {**TINY, **{key.replace("__", "."): value for key, value in changes.items()}}
    page.evaluate("values => sessionStorage.setItem('new-run', JSON.stringify(values))", values)
    page.goto(served.url + "/new")


def step_shown(page) -> int:
    return int(re.sub(r"\D", "", page.locator(".progress b").first.inner_text()) or 0)


def wait_for_step(page, at_least: int) -> None:
    page.wait_for_function("n => Number((document.querySelector('.progress b')?.textContent ?? '').replace(/\\D/g, '')) >= n", arg=at_least, timeout=60_000)


def bright_pixels(page) -> int:
    """Of the first chart's canvas, those painted nearly white: the lines of a light page's grid."""
    return page.evaluate("""() => {
        const canvas = document.querySelector("canvas"), pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        let bright = 0;
        for (let i = 0; i < pixels.length; i += 4) bright += pixels[i + 3] > 200 && pixels[i] > 200 && pixels[i + 1] > 200 && pixels[i + 2] > 200;
        return bright;
    }""")


def test_empty_says_what_to_do(page, served):
    page.goto(served.url)
    page.get_by_role("heading", name="No run yet").wait_for()
    assert page.get_by_text("lockstep train -f models/nano.yaml").is_visible()
    browser.picture(page, "empty")
    assert browser.violations(page) == []
    assert page.evaluate("performance.getEntriesByType('paint').find(one => one.name === 'first-contentful-paint').startTime") < 2000


def test_a_run_from_the_form_to_three_ranks(page, served):
    fill_tiny(page, served, name="walk", trainer__max_steps="200000")
    page.locator("#field-trainer-learning_rate").fill("0.004")
    page.get_by_text("2 ranks").wait_for()
    browser.picture(page, "new-run")
    assert browser.violations(page) == []
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_role("heading", name="walk").wait_for()
    wait_for_step(page, 3)
    first = step_shown(page)
    wait_for_step(page, first + 5)
    # How long a step that is written takes to be on the page: said, and bounded with ten times the room.
    written = max(json.loads(line).get("step", 0) for line in (served.output / "walk" / "metrics.jsonl").read_text().splitlines())
    begun = time.monotonic()
    wait_for_step(page, written)
    print(f"a step that was written was on the page after {time.monotonic() - begun:.3f} s")
    assert time.monotonic() - begun < 10
    page.get_by_role("button", name="Sample now").click()
    page.locator("article.sample").first.wait_for()
    page.get_by_role("button", name="Save now").click()
    page.get_by_text(re.compile("save: done after step")).wait_for()
    browser.picture(page, "run")
    assert browser.violations(page) == []
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("button", name="Resume").wait_for()
    last = served.wait_for("walk", lambda run: run["state"] == "stopped")["step"]
    page.get_by_label("Ranks to resume on").fill("3")
    page.get_by_role("button", name="Resume").click()
    wait_for_step(page, last + 3)
    assert served.wait_for("walk", lambda run: run["state"] == "running")["ranks"] == [0, 1, 2]
    page.get_by_role("button", name="Stop", exact=True).click()
    served.wait_for("walk", lambda run: run["state"] == "stopped")


def test_a_killed_rank_is_explained(page, served):
    served.begin("dies", trainer__max_steps="200000")
    served.wait_for("dies", lambda run: run["step"] >= 2)
    page.goto(served.url + "/runs/dies")
    wait_for_step(page, 3)
    launcher = json.loads((served.output / ".ui" / "dies.start").read_text())["pid"]
    worker = subprocess.run(["pgrep", "-P", str(launcher)], capture_output=True, text=True).stdout.split()[1]
    os.kill(int(worker), signal.SIGKILL)
    report = page.get_by_label("What went wrong")
    report.wait_for()
    assert "rank 1" in report.inner_text() and "SIGKILL" in report.inner_text()
    assert page.get_by_text("Cannot be resumed: it has no checkpoint").is_visible()
    browser.picture(page, "failed")
    assert browser.violations(page) == []


def test_a_run_that_hangs_can_be_ended(page, served):
    """Its ranks stand still: a stop is not heard, so the page says what ending it costs, and ends it."""
    served.begin("hangs", trainer__max_steps="200000", trainer__save_interval="5")
    served.wait_for("hangs", lambda run: run["step"] >= 7)
    launcher = json.loads((served.output / ".ui" / "hangs.start").read_text())["pid"]
    workers = [int(pid) for pid in subprocess.run(["pgrep", "-P", str(launcher)], capture_output=True, text=True).stdout.split()]
    page.goto(served.url + "/runs/hangs")
    wait_for_step(page, 7)
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_text("It was asked to stop").wait_for()
    assert re.search(r"Ending it loses (the [\d,]+ steps since checkpoint [\d,]+, and nothing before|nothing: its last step is saved)\.", page.get_by_role("alert").inner_text())
    browser.picture(page, "hangs")
    page.get_by_role("button", name="End it").click()
    page.get_by_role("button", name="Resume").wait_for()
    assert served.json("GET", "/api/runs/hangs")["state"] == "ended"
    assert not any(os.path.exists(f"/proc/{pid}") and open(f"/proc/{pid}/stat").read().split()[2] != "Z" for pid in [launcher, *workers])
    assert "is not being trained" in served.json("POST", "/api/runs/hangs/end", {}, 409)["error"]


def test_a_checkpoint_is_exported_and_a_run_is_deleted_while_someone_looks(page, served):
    served.begin("gives", trainer__max_steps="6")
    served.wait_for("gives", lambda run: run["state"] == "complete")
    page.goto(served.url + "/runs/gives?tab=checkpoints")
    page.get_by_role("button", name="Export step 6").click()
    made = page.get_by_label("Model folders")
    made.get_by_text("✓ made").wait_for(timeout=60_000)
    assert "exports/step-000006" in made.inner_text() and page.get_by_role("button", name="Export step 6").is_disabled()
    browser.picture(page, "exported")
    assert browser.violations(page) == []
    other = page.context.new_page()  # two tabs: one deletes what the other shows
    other.goto(served.url)
    other.get_by_label("Delete gives").click()
    other.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_text("there is no run gives").wait_for()


def test_mistakes_stand_at_their_fields(page, served):
    fill_tiny(page, served)
    page.locator("#field-trainer-learning_rate").fill("fast")
    mistake = page.locator(".field", has=page.locator("#field-trainer-learning_rate")).get_by_role("alert")
    mistake.wait_for()
    assert "must be a number" in mistake.inner_text()
    assert page.locator("#field-trainer-learning_rate").get_attribute("aria-invalid") == "true"
    assert page.get_by_role("button", name="Start", exact=True).is_disabled()
    page.evaluate("scrollTo(0, 0)")
    page.get_by_label("Mistakes").get_by_role("button", name="trainer.learning_rate").click()  # from beside the form to the field
    assert page.evaluate("document.activeElement.id") == "field-trainer-learning_rate"
    browser.picture(page, "mistake")
    assert browser.violations(page) == []
    page.locator("#field-trainer-learning_rate").fill("0.001")
    page.get_by_text("Effective batch").first.wait_for()
    page.get_by_label("Search settings").fill("weight decay")
    page.get_by_label("trainer.weight_decay").fill("0.2")
    page.get_by_text("trainer.weight_decay=0.2").wait_for()


def test_only_start_starts(page, served):
    """Copying the command, taking a value back, choosing and inspecting: none of it sends the form."""
    fill_tiny(page, served, name="unstarted", trainer__max_steps="5")
    page.get_by_label("The same as a command").wait_for()
    page.locator("#field-trainer-learning_rate").fill("0.5")
    page.get_by_role("button", name="Back to the default of trainer.learning_rate").click()
    page.get_by_role("button", name="copy", exact=True).click()
    page.get_by_role("button", name=re.compile("copied|selected")).wait_for()
    page.wait_for_timeout(500)
    assert page.url.endswith("/new") and not (served.output / "unstarted").exists() and not (served.output / ".ui" / "unstarted.start").exists()


def test_a_file_of_another_program_is_imported(page, served):
    page.goto(served.url + "/new")
    page.locator("input[type=file]").set_input_files({"name": "axolotl.yaml", "mimeType": "text/yaml", "buffer": AXOLOTL.format(model=served.folder).encode()})
    report = page.get_by_label("Imported")
    report.wait_for()
    page.get_by_role("button", name="All of it").click()
    assert "Axolotl" in report.inner_text() and "lora.rank = 16" in report.inner_text()
    assert page.get_by_label("LoRA rank").input_value() == "16" and page.locator("#field-trainer-learning_rate").input_value() == "0.0002"
    browser.picture(page, "import")


def test_runs_are_compared(page, served):
    for name, rate in (("slow", "0.0001"), ("quick", "0.01")):
        served.begin(name, trainer__max_steps="30", trainer__learning_rate=rate)
    for name in ("slow", "quick"):
        served.wait_for(name, lambda run: run["state"] == "complete")
    page.goto(served.url)
    for name in ("slow", "quick"):
        page.get_by_label(f"Compare {name}").check()
    page.get_by_role("button", name="Compare 2").click()
    table = page.get_by_label("Differing settings")
    table.get_by_text("trainer.learning_rate").wait_for()
    assert table.get_by_role("row").count() == 1
    browser.picture(page, "compare")
    assert browser.violations(page) == []
    page.reload()  # the address is the state
    table.get_by_text("trainer.learning_rate").wait_for()


def test_it_goes_on_when_the_program_comes_back(page, chrome, served):
    served.begin("over", trainer__max_steps="200000")
    page.goto(served.url + "/runs/over")
    wait_for_step(page, 3)
    served.stop()
    page.locator(".gone").wait_for()
    before = step_shown(page)
    time.sleep(1)
    served.start()
    wait_for_step(page, before + 3)
    page.locator(".gone").wait_for(state="detached")
    page.get_by_role("button", name="Stop", exact=True).click()
    served.wait_for("over", lambda run: run["state"] == "stopped")
    chrome.complaints[:] = [one for one in chrome.complaints if "ERR_CONNECTION_RESET" not in one]  # of what was asked for as the program ended


def test_dark_and_a_phone(chrome, served):
    if not (served.output / "quick").exists():
        served.begin("quick", trainer__max_steps="30")
        served.wait_for("quick", lambda run: run["state"] == "complete")
    for name, options in (("dark", {"dark": True}), ("phone", {"width": 390, "height": 844}), ("phone-dark", {"width": 390, "height": 844, "dark": True}), ("wide", {"width": 3840, "height": 2160})):
        window = chrome.window(**options)
        for view, path in (("run", "/runs/quick"), ("new", "/new"), ("list", "/")):
            window.goto(served.url + path)
            window.wait_for_timeout(400)
            browser.picture(window, f"{name}-{view}")
            assert browser.violations(window) == [], (name, view)
            browser.wait_until_it_fits(window)
        if options.get("dark"):
            assert window.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 18, 22)"
            window.goto(served.url + "/runs/quick")
            window.locator("canvas").first.wait_for()
            assert not bright_pixels(window), "charts are drawn with the colors of the light page"
            window.get_by_label("Light colors").click()
            deadline = time.monotonic() + 20
            while not bright_pixels(window):
                assert time.monotonic() < deadline, "charts follow when colors are chosen"
                window.wait_for_timeout(50)
        window.context.close()


def test_by_keyboard_alone(page, served):
    fill_tiny(page, served, name="keys", trainer__max_steps="20")
    page.get_by_text("Effective batch").first.wait_for()
    for _ in range(200):  # Tab until the field has the focus
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement?.id") == "field-trainer-learning_rate":
            break
    else:
        raise AssertionError("the learning rate cannot be reached by Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none", "the focus cannot be seen"
    page.keyboard.press("Control+A")
    page.keyboard.type("0.002")
    page.get_by_text("trainer.learning_rate=0.002").wait_for()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="keys").wait_for()
    assert served.wait_for("keys", lambda run: run["state"] == "complete")["step"] == 20


def test_the_page_is_small_and_has_no_inline_code(chrome, served):
    status, html, headers = served.request("GET", "/", headers={"Accept-Encoding": "gzip"})
    import gzip

    text = gzip.decompress(html).decode()
    files = re.findall(r'(?:src|href)="(/[^"]+)"', text)
    total = len(html) + sum(len(served.request("GET", file, headers={"Accept-Encoding": "gzip"})[1]) for file in files)
    print(f"the page is {total} bytes on the way")
    assert total < 300_000
    assert "<script>" not in text and "style=" not in text
