"""Neighbours that burn every CPU in bursts, as on a machine that is shared."""

import contextlib
import os
import subprocess
import sys

BURSTS = """
import os, random, time
random.seed(os.getpid())
while True:
    end = time.monotonic() + random.expovariate(1 / 0.4)
    while time.monotonic() < end:
        pass
    time.sleep(random.expovariate(1 / 0.6))
"""


@contextlib.contextmanager
def neighbours(wanted=True):
    """One on each CPU, while the context lasts; none, unless wanted."""
    burning = [subprocess.Popen([sys.executable, "-c", BURSTS]) for _ in range(os.cpu_count() if wanted else 0)]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait()
