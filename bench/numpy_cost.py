#!/usr/bin/env python3
"""What NumPy costs on arrays of four times the local budget, beside plain NumPy and beside `loam run` on the same script.

    make python && target/python/bin/python bench/numpy_cost.py [--loam target/release/loam] [--local 32] [--times 4]
                                            [--repeat 3] [--operation sum --operation matmul ...] [--page SIZE] [--json FILE]

For each operation an array (of matmul: two) of --times times --local MiB is made; then the operation is timed alone, in a process of its own each:

    plain         NumPy alone
    library       loam.connect(local), within loam.allocator()
    run           `loam run` with the same --local, on the same script, which allocates as it always does
    run, equal    `loam run` with --local and what Python with NumPy has when it begins, which loam.connect does not count either
    region, equal the same with --region

`loam run` may send away what Python keeps and does not use, and loam.connect does not; but libraries that Python loads later count in both.
Results are compared bit by bit. Two lenders on this machine (--embedded) stand for others. Needs the Python package (`make python` installs it into
target/python) in the Python that runs this. Prints a markdown table of medians, with the least and the largest.
"""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 500
MIB = 1 << 20
WAYS = ["plain", "library", "run", "run, equal", "region, equal"]
LENDERS = ["--embedded", "2x1G", "--durability", "none"]


def make(operation, numbers):
    import numpy as np

    rng = np.random.default_rng(2026)
    if operation == "matmul":
        side = int((numbers / 2) ** 0.5)
        return rng.random((2, side, side))
    return rng.random(numbers)


def work(operation, array):
    import numpy as np

    if operation == "sum":
        return array.sum()
    if operation == "matmul":
        return array[0] @ array[1]
    return np.sort(array)


def private_bytes():
    """Anonymous memory of this process that is here."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise RuntimeError("/proc/self/status has no RssAnon")


def flags(page):
    return [*LENDERS, "--page", page]


def child(way, operation, local_mib, times, page):
    import contextlib

    import numpy as np

    import loam

    before = private_bytes()
    if way == "library":
        loam.connect(local_mib * MIB, flags=flags(page))
    faults = (lambda: loam.stats()["faults"]) if way != "plain" else (lambda: {"total": 0})
    with loam.allocator() if way == "library" else contextlib.nullcontext():
        begun = time.perf_counter()
        array = make(operation, times * local_mib * MIB // 8)
        made_s = time.perf_counter() - begun
        made_faults = faults()
        begun = time.perf_counter()
        result = work(operation, array)
        seconds = time.perf_counter() - begun
        all_faults = faults()
        work_faults = {kind: count - made_faults[kind] for kind, count in all_faults.items()}
    digest = hashlib.blake2b(np.ascontiguousarray(result)).hexdigest()
    print(json.dumps({
        "made_s": made_s, "seconds": seconds, "made_faults": made_faults["total"], "faults": work_faults["total"],
        "kinds": work_faults, "stats": loam.stats(), "digest": digest, "before_bytes": before,
    }))


def measure(loam, way, operation, options, before_bytes):
    command = [sys.executable, __file__, "--child", way, "--operation", operation,
               "--local", str(options.local), "--times", str(options.times), "--page", options.page]
    if way not in ("plain", "library"):
        local = options.local * MIB + (before_bytes if "equal" in way else 0)
        region = ["--region", str(16 * options.local * MIB)] if "region" in way else []
        command = [loam, "run", "--quiet", "--local", str(local), *flags(options.page), *region, "--", *command]
    with tempfile.TemporaryDirectory() as here:
        ended = subprocess.run(command, env={**os.environ, "LOAM": loam}, cwd=here, stdout=subprocess.PIPE, timeout=LIMIT_S, check=True)
    return json.loads(ended.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loam", default=os.environ.get("LOAM_BIN", ROOT / "target/release/loam"))
    parser.add_argument("--local", type=int, default=32, help="MiB")
    parser.add_argument("--times", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--operation", action="append", choices=["sum", "matmul", "sort"])
    parser.add_argument("--page", default="auto", help="the page size of all ways: what is found varies from run to run")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(options.child, options.operation[0], options.local, options.times, options.page)
    loam = str(Path(options.loam).resolve())
    all_runs = {}
    print(f"{options.times * options.local} MiB, of which {options.local} may be here; median of {options.repeat} (least to largest)\n")
    print("| operation | way | seconds | over plain | faults | faults to make it |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for operation in options.operation or ["sum", "matmul", "sort"]:
        runs = {way: [] for way in WAYS}
        before = 0
        for _ in range(options.repeat):
            for way in WAYS:  # in turns, so that what else the machine does meets all of them
                runs[way].append(measure(loam, way, operation, options, before))
                before = runs["plain"][0]["before_bytes"]
        digests = {run["digest"] for way in WAYS for run in runs[way]}
        assert len(digests) == 1, f"{operation}: results differ"
        all_runs[operation] = runs
        plain_s = statistics.median(run["seconds"] for run in runs["plain"])
        for way in WAYS:
            figure = lambda key: [run[key] for run in runs[way]]  # noqa: E731
            seconds, faults = figure("seconds"), figure("faults")
            print(
                f"| {operation} | {way} | {statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f}) "
                f"| {statistics.median(seconds) / plain_s:.1f} | {statistics.median(faults):,.0f} ({min(faults):,} to {max(faults):,}) "
                f"| {statistics.median(figure('made_faults')):,.0f} |",
                flush=True,
            )
    print("\nAll ways have given the same bits.")
    if options.json:
        options.json.write_text(json.dumps(all_runs, indent=1) + "\n")


if __name__ == "__main__":
    main()
