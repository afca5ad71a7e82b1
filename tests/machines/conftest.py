"""boxes(n): so many machines with cables between them; gone with the test. A skip, by name, where they cannot be made."""
import pytest

import network


@pytest.fixture
def boxes(tmp_path):
    reason = network.why_not()
    if reason:
        pytest.skip(reason)
    opened = []

    def make(count):
        (tmp_path / "logs").mkdir(exist_ok=True)
        opened.append(network.Network(count, tmp_path / "logs"))
        return opened[-1].__enter__()

    yield make
    for one in opened:
        one.__exit__()
