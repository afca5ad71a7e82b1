"""Fixtures shared by all pytest folders."""
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

# Under nohup SIGHUP is ignored, and programs inherit that: tests that send it need it to count.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
