"""Makes the fixture known to the tests of this folder."""
from fault_jobs import start  # noqa: F401
