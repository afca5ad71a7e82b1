"""One page, and one Chromium, for the tests of a file."""
import pytest

import browser
from serving import Served


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    page = Served(tmp_path_factory.mktemp("ui"))
    yield page
    page.close()


@pytest.fixture(scope="module")
def chrome():
    browser.expect_tools()
    made = browser.Browser()
    yield made
    made.close()
    assert made.complaints == []


@pytest.fixture
def page(chrome):
    window = chrome.window()
    yield window
    window.context.close()
