"""Fixtures shared by all pytest folders."""
import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

# Some virtual machines advertise AMX and then refuse its instructions: PyTorch, the reference, would die of bf16 there. Our programs find out
# by themselves, and the C++ tests run them without this.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

# Files of tests run beside each other: threads that spin while they wait for one that has lost its core take it from others that have work.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Under nohup SIGHUP is ignored, in a script's background job SIGINT, and programs inherit that: tests that send them need them to count.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
