#!/usr/bin/env python3
"""What the write cache is worth: programs that dirty memory in bursts, on a slow disk (nwcache-1999, tables 3 and 4).

    sudo bench/write_cache.py [--loam target/release/loam] [--local 25] [--disk-mb 20] [--mib 64] [--repeat 3]
                              [--ways disk,staged,...] [--dir DIR] [--json FILE]

Two programs (bench/radix.c sorts --mib MiB of keys; sqlite3 loads an in-memory database) at --local percent of their memory, under each
durability: `disk`, `staged` with two lenders that have disks, `staged` with two that have none, and `none`. The borrower and each lender are in
blkio cgroups (version 1) of their own with --disk-mb megabytes a second, read and written: each machine has its own slow disk.

Prints a markdown table: seconds (median of --repeat, and their spread), the median swap-out, pages sent per page that left with new contents, pages that
lenders wrote and how many a write, and writes that victim reads and newer versions saved. Outputs are compared. Needs root. Nothing is left behind.
"""

import argparse
import contextlib
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLKIO = Path("/sys/fs/cgroup/blkio")
LIMIT_S = 900
WAYS = ["disk", "staged", "staged, no disks", "none"]


class Slow:
    """A cgroup with so many bytes a second of the disk under a folder."""

    def __init__(self, name, folder, bytes_per_s):
        device = os.stat(folder).st_dev
        self.path = BLKIO / f"loam-{name}-{os.getpid()}"
        self.path.mkdir()
        for way in ("read", "write"):
            limit = f"{os.major(device)}:{os.minor(device)} {bytes_per_s}"
            (self.path / f"blkio.throttle.{way}_bps_device").write_text(limit)

    def join(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        for _ in range(50):
            with contextlib.suppress(OSError):
                self.path.rmdir()
                return
            time.sleep(0.1)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Lender:
    def __init__(self, args, folder, n, store):
        self.slow = Slow(f"lender{n}", folder, args.disk_mb * 1_000_000)
        self.port, self.http = free_port(), free_port()
        command = [args.loam, "lend", "4G", "--listen", f"127.0.0.1:{self.port}", "--http", f"127.0.0.1:{self.http}"]
        if store:
            directory = folder / f"store{n}"
            directory.mkdir()
            command += ["--store", str(directory), "--store-size", "4G"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, preexec_fn=self.slow.join)
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.end()
                sys.exit(f"{' '.join(command)} does not listen")
            time.sleep(0.05)

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return {name: float(value) for name, value in re.findall(r"^(\w+) ([0-9.e+]+)$", text, re.M)}

    def end(self):
        self.process.kill()
        self.process.wait()
        self.slow.remove()


def plain(command):
    """Output, seconds and peak resident MiB of a plain run."""
    with tempfile.TemporaryFile() as out:
        began = time.monotonic()
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.monotonic() - began
        if status:
            sys.exit(f"{' '.join(command)} failed by itself")
        out.seek(0)
        return out.read(), seconds, usage.ru_maxrss // 1024


def once(args, command, local_mib, way, wanted):
    """One run: its seconds, summary, and what its lenders say of their disks."""
    with tempfile.TemporaryDirectory(dir=args.dir) as folder:
        folder = Path(folder)
        lenders, slow = [], Slow("borrower", folder, args.disk_mb * 1_000_000)
        try:
            for n in range(2):
                lenders.append(Lender(args, folder, n, way == "staged"))
            run = [args.loam, "run", "--quiet", "--local", f"{local_mib}M", "--durability", way.split(",")[0],
                   "--disk", str(folder), "--summary", str(folder / "summary.json")]
            for lender in lenders:
                run += ["--lender", f"127.0.0.1:{lender.port}"]
            began = time.monotonic()
            done = subprocess.run([*run, "--", *command], capture_output=True, timeout=LIMIT_S, preexec_fn=slow.join)
            seconds = time.monotonic() - began
            if done.returncode or done.stdout != wanted:
                sys.exit(f"{' '.join(run)}: {done.returncode}: {done.stderr.decode()[-2000:]}")
            figures = [lender.metrics() for lender in lenders]
            return seconds, json.loads((folder / "summary.json").read_text()), figures
        finally:
            for lender in lenders:
                lender.end()
            slow.remove()


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--loam", default=str(ROOT / "target/release/loam"))
    parse.add_argument("--local", type=int, default=25)
    parse.add_argument("--disk-mb", type=int, default=20)
    parse.add_argument("--repeat", type=int, default=3)
    parse.add_argument("--mib", type=int, default=64)
    parse.add_argument("--ways", default=",".join(WAYS), help="`none`, which others are compared with, always is")
    parse.add_argument("--dir", default="/var/tmp")
    parse.add_argument("--json")
    args = parse.parse_args()
    ways = [way for way in WAYS if way in args.ways.split(",") or way == "none"]
    if os.geteuid():
        sys.exit("cgroups need root")
    if not (BLKIO / "blkio.throttle.write_bps_device").exists():
        sys.exit("no blkio cgroup (version 1) on this machine: the disk cannot be throttled")
    sql = tempfile.NamedTemporaryFile("w", suffix=".sql")
    sql.write((ROOT / "tests/programs/table.sql").read_text().replace("i < 26000", f"i < {args.mib * 400}"))
    sql.flush()
    built = tempfile.TemporaryDirectory()
    radix = f"{built.name}/radix"
    subprocess.run(["cc", "-O2", "-o", radix, ROOT / "bench/radix.c"], check=True)
    programs = {
        "radix sort": [radix, str(args.mib)],
        "sqlite3 in memory": ["sh", "-c", f"sqlite3 :memory: < '{sql.name}'"],
    }
    rows = []
    print("| program | durability | seconds | against `none` | swap-out p50 | sent per new page | written by lenders | pages a write | never written |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, command in programs.items():
        wanted, plain_s, peak = plain(command)
        local_mib = max(32, peak * args.local // 100)
        print(f"| {name} | plain, {peak} MiB | {plain_s:.1f} | | | | | | |", flush=True)
        runs = {way: [] for way in ways}
        for _ in range(args.repeat):
            for way in ways:
                runs[way].append(once(args, command, local_mib, way, wanted))
        median = {way: statistics.median(run[0] for run in runs[way]) for way in ways}
        for way in ways:
            times = [run[0] for run in runs[way]]
            _, summary, figures = sorted(runs[way], key=lambda run: run[0])[len(times) // 2]
            left = summary["evictions"]
            new = max(1, left["moved"] - left["clean"] - left["zero"])
            total = lambda key: sum(lender.get(key, 0) for lender in figures)
            written, writes = total("loam_lender_drained_total"), total("loam_lender_drain_writes_total")
            swap_out = summary["swap_out_us"]["p50"]
            rows.append({"program": name, "durability": way, "seconds": times, "swap_out_us": summary["swap_out_us"],
                         "sent_per_new_page": summary["staging"]["sent"] / new, "written_pages": written, "writes": writes,
                         "lenders": figures, "summary": summary})
            each = f"{written / writes:.1f}" if writes else ""
            print(f"| | `{way}` | {median[way]:.1f} ({min(times):.1f} to {max(times):.1f}) | {median[way] / median['none']:.2f} | "
                  f"{swap_out / 1000:.2f} ms | {summary['staging']['sent'] / new:.2f} | {written:.0f} | {each} | "
                  f"{total('loam_lender_staged_cancelled_total'):.0f} |", flush=True)
        # Side by side: a slow minute of the machine is then in both.
        pairs = [pair for pair in [("disk", "staged"), ("staged", "none"), ("staged, no disks", "none")] if set(pair) <= set(ways)]
        paired = lambda way, other: statistics.median(a[0] / b[0] for a, b in zip(runs[way], runs[other]))
        told = ", ".join(f"`{way}` takes {paired(way, other):.2f} times as long as `{other}`" for way, other in pairs)
        print(f"| | | median of each round: {told} | | | | | | |", flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
