"""A lender, and fresh interpreters that borrow from it: a process connects once, so each test needs its own."""

import os
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Iterator, Mapping, Sequence

import pytest

ROOT = Path(__file__).resolve().parents[3]
#: Many times what a test takes, so that a machine that has much else to do is not taken for a program that hangs.
LIMIT_S = 240


def _loam() -> Path:
    """The command to test: ``LOAM_BIN``, or the release build."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = Path(os.environ.get("LOAM_BIN", target / "release/loam"))
    if not path.is_file():
        pytest.exit(f"no {path}: make build first, or set LOAM_BIN", returncode=2)
    return path.resolve()


@pytest.fixture(scope="session")
def loam_bin() -> Path:
    return _loam()


@pytest.fixture(scope="session")
def lender(loam_bin: Path) -> Iterator[str]:
    """The address of a ``loam lend``."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % probe.getsockname()[1]
    lend = subprocess.Popen([loam_bin, "lend", "1G", "--listen", address], stdout=subprocess.DEVNULL)
    try:
        host, port = address.split(":")
        for _ in range(100):
            if lend.poll() is not None:
                pytest.exit(f"loam lend ended with {lend.returncode}", returncode=2)
            with socket.socket() as ask:
                if ask.connect_ex((host, int(port))) == 0:
                    break
            time.sleep(0.1)
        else:
            pytest.exit("loam lend does not listen", returncode=2)
        yield address
    finally:
        lend.terminate()
        try:
            lend.wait(timeout=10)
        except subprocess.TimeoutExpired:
            lend.kill()
            lend.wait()


class Ended:
    """What a program has left behind."""

    def __init__(self, code: int, stdout: str, stderr: str) -> None:
        self.code, self.stdout, self.stderr = code, stdout, stderr


#: What each interpreter begins with.
START = """
import numpy as np, loam

def faults():
    return loam.stats()["faults"]["total"]

# Pages of an array that are here.
def resident(array):
    start = array.__array_interface__["data"][0]
    with open("/proc/self/pagemap", "rb") as pagemap:
        pagemap.seek(start // 4096 * 8)
        entries = np.frombuffer(pagemap.read(array.nbytes // 4096 * 8), np.uint64)
    return int((entries >> np.uint64(63)).sum())
"""


class Fresh:
    """Runs code in an interpreter of its own. It finds ``loam``, ``np``, ``LENDER``, ``faults``, ``resident``, and what a test adds to the environment."""

    def __init__(self, loam_bin: Path, lender: str) -> None:
        self.loam_bin, self.lender = loam_bin, lender

    def run(self, code: str, prefix: Sequence[str] = (), environment: Mapping[str, str] = {}) -> Ended:
        start = f"{START}LENDER = {self.lender!r}\n"
        command = [*prefix, sys.executable, "-X", "faulthandler", "-c", start + textwrap.dedent(code)]
        # In this folder, where there is no `loam` that would be imported instead of the installed one.
        here = Path(__file__).parent
        env = {**os.environ, "LOAM": str(self.loam_bin), **environment}
        ended = subprocess.run(command, env=env, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S)
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    def __call__(self, code: str, **environment: str) -> str:
        """The output of code that ends well."""
        ended = self.run(code, (), environment)
        assert ended.code == 0, f"exit {ended.code}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout


@pytest.fixture
def fresh(loam_bin: Path, lender: str) -> Fresh:
    return Fresh(loam_bin, lender)
