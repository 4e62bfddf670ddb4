#!/usr/bin/env python3
"""Loam's replay beside libCacheSim: miss counts to the last unit, and requests a second.

    python3 -m venv venv && venv/bin/pip install libcachesim==0.3.5
    venv/bin/python bench/replay/compare.py [--loam target/release/loam] [--repeat N] [--out FILE.md] [TRACE...]

Streams: two Zipf streams of 20 million requests that `loam sim replay --export` writes, and the traces that are given, in oracleGeneral
format, not compressed (`lackey.py`, or `loam trace export --format oracle`). libCacheSim runs in its default configuration, its C loop
over its C reader, objects of size 1.

FIFO, LRU, CLOCK and Belady must be equal; SIEVE is too; ends with status 1 if one is not. S3-FIFO and ARC are not the same algorithm to
the letter (each says where in its source), so they are not compared.

Rates: each policy runs --repeat times in both, in turns, one thread, and the best time counts. `replay` is Loam's time for the policy
alone, with the stream in memory; `with reading` adds reading the file and numbering its pages, which libCacheSim's figure contains
(it maps the file and looks every object up in a hash table). Loam reads once for all policies.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import libcachesim

ROOT = Path(__file__).resolve().parents[2]
ZIPF = {"zipf-0.8": "1000000:0.8:20000000", "zipf-1.0": "1000000:1.0:20000000"}
POLICIES = {
    "fifo": libcachesim.FIFO,
    "lru": libcachesim.LRU,
    "clock": libcachesim.Clock,
    "belady": libcachesim.Belady,
    "sieve": libcachesim.Sieve,
}
RECORD_BYTES = 24
# Parts of the stream's pages that are frames.
PARTS = (0.01, 0.1, 0.5)
LRU_RATE_MIN = 5


def ours(loam, trace, policy, frames):
    """Misses, seconds of the policy, seconds of reading, pages."""
    command = [loam, "sim", "replay", str(trace), "--policy", policy, "--frames", str(frames), "--json"]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    row = report["rows"][0]
    return row["misses"], row["seconds"], report["read_seconds"], report["pages"]


def theirs(trace, policy, frames, requests):
    """Misses and seconds."""
    reader = libcachesim.TraceReader(
        str(trace),
        libcachesim.TraceType.ORACLE_GENERAL_TRACE,
        libcachesim.ReaderInitParam(ignore_obj_size=True),
    )
    cache = POLICIES[policy](cache_size=frames)
    start = time.perf_counter()
    ratio, _ = cache.process_trace(reader)
    seconds = time.perf_counter() - start
    misses = ratio * requests
    # It gives a ratio: the count behind it is whole, and a double holds it exactly.
    assert abs(misses - round(misses)) < 1e-3, misses
    return round(misses), seconds


def compare(loam, name, trace, repeat):
    """Rows of one stream, and whether all counts are equal."""
    requests = trace.stat().st_size // RECORD_BYTES
    pages = ours(loam, trace, "fifo", 1)[3]
    rows, equal, slowest = [], True, float("inf")
    for part in PARTS:
        frames = max(1, int(pages * part))
        for policy in POLICIES:
            runs = [(ours(loam, trace, policy, frames), theirs(trace, policy, frames, requests)) for _ in range(repeat)]
            mine, other = runs[0][0][0], runs[0][1][0]
            equal &= all(run[0][0] == mine and run[1][0] == other for run in runs) and mine == other
            alone = min(run[0][1] for run in runs)
            reading = alone + min(run[0][2] for run in runs)
            their = min(run[1][1] for run in runs)
            if policy == "lru":
                slowest = min(slowest, their / alone)
            rows.append(
                f"| {name} | {policy} | {frames:,} | {mine:,} | {other:,} | {'yes' if mine == other else 'NO'} "
                f"| {requests / alone / 1e6:.1f} | {requests / reading / 1e6:.1f} | {requests / their / 1e6:.1f} "
                f"| {their / alone:.1f} | {their / reading:.1f} |"
            )
            print(rows[-1], flush=True)
    return rows, equal, slowest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loam", default=str(ROOT / "target/release/loam"))
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--no-zipf", action="store_true", help="the given traces only")
    parser.add_argument("--out", help="write the table to this file too")
    parser.add_argument("trace", nargs="*", type=Path)
    args = parser.parse_args()
    head = [
        "| stream | policy | frames | misses, Loam | misses, libCacheSim | equal "
        "| replay, M/s | with reading, M/s | libCacheSim, M/s | ratio | ratio with reading |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    print("\n".join(head))
    rows, equal, slowest = [], True, float("inf")
    with tempfile.TemporaryDirectory(prefix="loam-replay-") as folder:
        for name, spec in {} if args.no_zipf else ZIPF.items():
            trace = Path(folder) / f"{name}.oracleGeneral"
            subprocess.run([args.loam, "sim", "replay", "--zipf", spec, "--export", str(trace)], check=True)
            more, same, ratio = compare(args.loam, name, trace, args.repeat)
            rows, equal, slowest = rows + more, equal and same, min(slowest, ratio)
            trace.unlink()
        for trace in args.trace:
            more, same, ratio = compare(args.loam, trace.name.split(".")[0], trace, args.repeat)
            rows, equal, slowest = rows + more, equal and same, min(slowest, ratio)
    verdicts = ["counts: PASS: all equal" if equal else "counts: FAIL: not all are equal"]
    passed = slowest >= LRU_RATE_MIN
    verdicts.append(
        f"LRU rate: {'PASS' if passed else 'FAIL'}: at least {slowest:.1f} times libCacheSim's (bar: {LRU_RATE_MIN})"
    )
    print("\n" + "\n".join(verdicts))
    if args.out:
        Path(args.out).write_text("\n".join(head + rows + [""] + verdicts) + "\n")
    sys.exit(0 if equal and passed else 1)


if __name__ == "__main__":
    main()
