"""Addresses and ports of this machine, for runs of several launchers on it."""
import contextlib
import random
import socket


def own_address() -> str:
    """One by which this machine would be reached; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return probe.getsockname()[0]
        except OSError:
            return "127.0.0.2"


def free_port() -> int:
    """Below those that the system gives to clients, any of which could take it before it is used. 1000 above it another may be needed, and none is at 29500."""
    while True:
        port = random.randrange(21000, 28000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port
