"""Chromium with the page open in it: Debian's, steered by Playwright. Pictures go to build/screenshots."""
import os
import pathlib
import shutil

import pytest

from support.lockstep import BUILD, ROOT

PICTURES = BUILD / "screenshots"
AXE = ROOT / ".deps/web/node_modules/axe-core/axe.min.js"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def expect_tools() -> None:
    """A skip where something is missing: tools/setup-test.sh installs all of it."""
    if CHROMIUM is None:
        pytest.skip("needs chromium (apt-get install chromium)")
    pytest.importorskip("playwright.sync_api", reason="needs playwright (tools/setup-test.sh)")
    if not AXE.exists():
        pytest.skip("needs the page's packages (npm, then make build)")


class Browser:
    """One Chromium for a file of tests; every test has a window of its own. What the page complains about on its console is a failure."""

    def __init__(self):
        from playwright.sync_api import sync_playwright

        PICTURES.mkdir(parents=True, exist_ok=True)
        self.playwright = sync_playwright().start()
        self.chromium = self.playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        self.complaints: list[str] = []

    def window(self, width: int = 1280, height: int = 800, dark: bool = False, **options):
        context = self.chromium.new_context(viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", reduced_motion="reduce", **options)
        context.set_default_timeout(20_000)
        page = context.new_page()
        page.on("console", lambda message: self.complaints.append(message.text) if message.type == "error" and "ERR_CONNECTION_REFUSED" not in message.text and "ERR_INCOMPLETE" not in message.text and "status of 4" not in message.text else None)
        page.on("response", lambda answer: self.complaints.append(f"{answer.url}: {answer.status} {answer.text()[:500]}") if answer.status >= 500 else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        return page

    def close(self) -> None:
        self.chromium.close()
        self.playwright.stop()


def wait_until_it_fits(page) -> None:
    """Charts follow the window's width a moment later."""
    page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")


def picture(page, name: str) -> None:
    page.screenshot(path=str(PICTURES / f"{name}.png"))


def violations(page) -> list[str]:
    """What axe finds serious."""
    page.evaluate(AXE.read_text())
    found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [f"{one['id']} ({one['impact']}): {node['target']} {node['failureSummary']}" for one in found["violations"] if one["impact"] in ("serious", "critical") for node in one["nodes"]]
