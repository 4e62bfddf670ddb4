#!/usr/bin/env python3
"""Page sizes that are found, beside fixed ones, where lenders are far away: kernels of bench/kernels at two lenders behind a proxy (delay.c) that delays each way.

    bench/latency.py [--one-way-us 50] [--megabytes-s 1000] [--sizes auto,4K,16K,64K,256K] [--limit SECONDS] [KERNEL:MIB:ITERATIONS:LOCAL_MIB ...]

One run of each. The proxies run on this machine, too: on two cores what they take is in each time, so only times of one run of this script say something of each other.
"""
import argparse
import filecmp
import os
import socket
import subprocess
import sys
import tempfile
import time

from btree import free_port
from pages import KERNEL, LOAM, ROOT

# About a quarter of their memory.
KERNELS = ["himeno:130:8:32", "cg:130:6:33", "is:136:3:34", "ft:170:2:40", "sp:130:2:32"]
LENT = "2G"


def wait_for(port):
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    sys.exit(f"nobody listens at port {port} after 5 s")


def run(command, limit, output):
    began = time.monotonic()
    with open(output, "wb") as out:
        try:
            ended = subprocess.run(command, stdout=out, stderr=subprocess.DEVNULL, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            return None
    if ended.returncode:
        sys.exit(f"{' '.join(command)} ended with {ended.returncode}")
    return time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--one-way-us", default="50")
    parser.add_argument("--megabytes-s", default="1000")
    parser.add_argument("--sizes", default="auto,4K,16K,64K,256K")
    parser.add_argument("--limit", type=float, default=60)
    parser.add_argument("kernels", nargs="*", default=KERNELS)
    asked = parser.parse_args()
    sizes = asked.sizes.split(",")
    with tempfile.TemporaryDirectory() as scratch:
        delay = os.path.join(scratch, "delay")
        source = os.path.join(ROOT, "bench/delay.c")
        subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", delay, source], check=True)
        started, far = [], []
        try:
            for _ in range(2):
                near = free_port()
                started.append(subprocess.Popen([LOAM, "lend", LENT, "--listen", f"127.0.0.1:{near}"],
                                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
                wait_for(near)
                far.append(free_port())
                started.append(subprocess.Popen([delay, str(far[-1]), str(near), asked.one_way_us, asked.megabytes_s]))
                wait_for(far[-1])
            print(f"| kernel | local | {' | '.join(sizes)} |")
            print(f"| --- | --- |{' --- |' * len(sizes)}")
            for row in asked.kernels:
                kernel, mib, iterations, local = row.split(":")
                program = [KERNEL, kernel, "--bytes", f"{mib}M", "--iterations", iterations, "--parts", "on"]
                plain, under = os.path.join(scratch, "plain"), os.path.join(scratch, "loam")
                if run(program, asked.limit, plain) is None:
                    sys.exit(f"{kernel} takes more than {asked.limit} s by itself")
                cells = []
                for size in sizes:
                    lenders = [word for port in far for word in ("--lender", f"127.0.0.1:{port}")]
                    loam = [LOAM, "run", "--quiet", "--local", f"{local}M", *lenders, "--page", size, "--"]
                    took = run(loam + program, asked.limit, under)
                    if took is not None and not filecmp.cmp(plain, under, shallow=False):
                        sys.exit(f"{kernel} with {size}: the output differs from the plain run's")
                    cells.append(f"> {asked.limit:.0f}" if took is None else f"{took:.1f}")
                print(f"| {kernel} | {local}M | {' | '.join(cells)} |", flush=True)
        finally:
            for process in started:
                process.terminate()
                process.wait()


if __name__ == "__main__":
    main()
