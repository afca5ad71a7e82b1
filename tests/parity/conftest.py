"""Fixtures of the parity tests."""
import pytest
from text_tool import TextTool


@pytest.fixture(scope="module")
def tool():
    """Our tokenizers and templates, answering line by line."""
    running = TextTool()
    yield running
    running.close()
