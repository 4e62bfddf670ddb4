#!/usr/bin/env python3
"""What forks cost, and whether trees that fork keep to --local.

    bench/forks.py [--loam target/release/loam] [--repeat 3] [--dir DIR]

bench/forks.c, plain and under Loam, with two embedded lenders. In turn: a parent with 160 MiB that all fit, which forks 60 children one after the
other, which end at once, and writes 1, 10 or 40 MiB each time; the same with half of its memory; four children with their parent that each write all of
400 MiB that they share, with --local 512M; and a child that reads 2 GiB while its parent writes in 200 MiB of its pages, with half of that here. Prints markdown: seconds between the first fork and the last child's end (medians of --repeat), their
ratio to plain, and the largest resident memory of the tree as Loam and, every 10 ms, this script from outside have seen it (each page
counted in parts for those that share it: Pss), beside the bar, --local plus 5% plus 32 MiB. Every output is compared with the plain run's.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MIB = 1 << 20
ROWS = [
    ("snapshot", 160, 60, 1, 256),
    ("snapshot", 160, 60, 10, 256),
    ("snapshot", 160, 60, 40, 256),
    ("snapshot", 160, 60, 10, 80),
    ("pool", 400, 4, 400, 512),
    ("save", 2048, 1, 200, 1024),
]
RUN_S = 300


def resident_mib(program):
    """The memory of all processes that run this program."""
    total = 0
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and (process / "exe").resolve() == program:
                found = re.search(r"^Pss:\s+(\d+) kB", (process / "smaps_rollup").read_text(), re.MULTILINE)
                total += int(found[1]) if found else 0
        except OSError:
            continue  # it has ended
    return total / 1024


def run(command, program, sampled, folder):
    """Seconds and largest memory; the output has to be that of others with the same arguments."""
    with open(folder / "out", "wb") as out, open(folder / "err", "wb") as err:
        started, peak = time.monotonic(), 0
        process = subprocess.Popen(command, stdout=out, stderr=err)
        while process.poll() is None:
            if time.monotonic() - started > RUN_S:
                process.kill()
                sys.exit(f"no end after {RUN_S} s: {command}")
            peak = max(peak, resident_mib(program)) if sampled else 0
            time.sleep(0.01)
    text = (folder / "err").read_text()
    if process.returncode:
        sys.exit(f"status {process.returncode}: {text}")
    seconds = re.search(r"^(\d+\.\d{3})$", text, re.MULTILINE)
    return float(seconds[1]), peak, (folder / "out").read_bytes()


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--loam", default=str(ROOT / "target/release/loam"))
    parse.add_argument("--repeat", type=int, default=3)
    parse.add_argument("--dir", default="/var/tmp")
    args = parse.parse_args()
    with tempfile.TemporaryDirectory(dir=args.dir) as name:
        folder = Path(name).resolve()
        program = folder / "forks"
        subprocess.run(["cc", "-O2", "-o", program, ROOT / "bench/forks.c"], check=True)
        print("| program | --local | plain s | Loam s | ratio | largest, by Loam | from outside | bar | longest wait ms |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
        for what, mib, children, written, local in ROWS:
            plain_command = [program, what, str(mib), str(children), str(written)]
            report = folder / "summary.json"
            options = ["--embedded", "2x4G", "--durability", "disk", "--disk", folder, "--local", f"{local}M", "--summary", report]
            plain, loam, peaks, seen, waits = [], [], [], [], []
            for _ in range(args.repeat):
                seconds, _, expected = run(plain_command, program, False, folder)
                plain.append(seconds)
                # Looking at a process's memory keeps it from changing: not while it is timed.
                seconds, _, output = run([args.loam, "run", *options, "--", *plain_command], program, False, folder)
                assert output == expected, "another output than without Loam"
                loam.append(seconds)
                waits.append(json.loads(report.read_text())["fault_latency_us"]["max"] / 1000)
                _, peak, output = run([args.loam, "run", *options, "--", *plain_command], program, True, folder)
                assert output == expected, "another output than without Loam"
                peaks.append(peak)
                seen.append(json.loads(report.read_text())["local_peak_bytes"] / MIB)
            a, b = statistics.median(plain), statistics.median(loam)
            bar = local * 1.05 + 32
            print(
                f"| {children} times, {written} MiB of {mib} written ({what}) | {local} MiB | {a:.2f} | {b:.2f} | {b / a:.1f} "
                f"| {max(seen):.0f} MiB | {max(peaks):.0f} | {bar:.0f} | {statistics.median(waits):.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
