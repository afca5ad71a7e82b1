"""One page for the tests of a file."""
import pytest

from serving import Served


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    page = Served(tmp_path_factory.mktemp("ui"))
    yield page
    page.close()
