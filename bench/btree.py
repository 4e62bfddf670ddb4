#!/usr/bin/env python3
"""The b-tree of regions-2010 (figures 9 and 10), live: searched in plain memory, in a paged region, in a direct region, and over kernel swap.

    sudo bench/btree.py [--loam target/release/loam] [--btree target/release/examples/btree] [--keys N] [--children 4,16,...]
                        [--searches N] [--percent P] [--ways plain,direct,paged,swap] [--dir DIR] [--out FILE.md] [--svg FILE.svg]

Every number of children is a tree of its own: built, searched a quarter as often as is measured, then measured. Searches are for keys that are there, at
random. The same program in each way (`cargo build --release -p loam --example btree`):
    plain   in its own memory
    direct  in a region of a `loam lend` on this machine: loads and stores
    paged   in a paged region, PERCENT of the tree here, its agent's buffers included (32 MiB at least: a tree of 128 MiB); two `loam lend` on loopback
    swap    plain, under a memory cgroup of PERCENT of the tree and the program's own 4 MiB, with a swap file on the disk of --dir (needs root)
The sums of what was found are compared. A way that cannot be tried here is left out with its reason.
"""

import argparse
import contextlib
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from compare import MIB, ROOT, Cgroup, Unavailable, disk_swap

WAYS = {"plain": "plain memory", "direct": "direct region", "paged": "paged region", "swap": "kernel swap"}
COLOURS = {"plain": "#767676", "direct": "#0072b2", "paged": "#009e73", "swap": "#d55e00"}
# What the program is beside its tree: measured, 2 to 3 MiB resident.
PROGRAM_BYTES = 4 * MIB
LOCAL_LEAST = 32 * MIB


def tree_bytes(keys, children):
    """As the program lays it out."""
    in_full, full = 1, 0
    while in_full * children - 1 <= keys:
        full += in_full
        in_full *= children
    nodes = full + -(-(keys - in_full + 1) // (children - 1))
    words = 1 + 2 * (children - 1) + children
    in_page = 512 // words
    last = nodes - 1
    at = last // in_page * 512 + last % in_page * words if in_page else last * words
    return (at + words) * 8


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def lenders(loam, count, size_bytes, work):
    """So many `loam lend`; their addresses, and the first one's socket for regions."""
    started, addresses = [], []
    path = work / "lend.sock"
    try:
        for at in range(count):
            address = f"127.0.0.1:{free_port()}"
            command = [loam, "lend", str(size_bytes), "--listen", address, *(["--socket", str(path)] if at == 0 else [])]
            log = open(work / f"lend-{at}.log", "wb")
            started.append(subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL))
            log.close()
            addresses.append(address)
        for at, address in enumerate(addresses):
            host, port = address.split(":")
            for _ in range(200):
                if started[at].poll() is not None:
                    raise Unavailable("loam lend: " + (work / f"lend-{at}.log").read_text(errors="replace").strip())
                with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
                    break
                time.sleep(0.05)
        yield addresses, path
    finally:
        for lender in started:
            lender.terminate()
        for lender in started:
            lender.wait()


def fields(line):
    return dict(word.split("=", 1) for word in line.split())


class Bench:
    def __init__(self, args, work):
        self.args, self.work, self.notes = args, work, []

    def run(self, way, children, more=(), before_exec=None):
        command = [self.args.btree, way, str(self.args.keys), str(children), str(self.args.searches), *more]
        env = dict(os.environ, LOAM=self.args.loam)
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=env, stdin=subprocess.DEVNULL, cwd=self.work,
                                  timeout=self.args.limit, preexec_fn=before_exec, check=False)
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"no end after {self.args.limit} s") from error
        if done.returncode:
            raise Unavailable(f"status {done.returncode}: {done.stderr.strip()[-300:]}")
        return fields(done.stdout)

    def plain(self, children):
        return self.run("plain", children)

    def direct(self, children):
        with lenders(self.args.loam, 1, tree_bytes(self.args.keys, children) + 64 * MIB, self.work) as (_, path):
            return self.run("direct", children, [str(path)])

    def paged(self, children):
        size = 2 * tree_bytes(self.args.keys, children) + 64 * MIB
        # `loam run` and the library take no less.
        if tree_bytes(self.args.keys, children) * self.args.percent // 100 < LOCAL_LEAST:
            raise Unavailable("less than 32 MiB would be here: more --keys")
        with lenders(self.args.loam, 2, size, self.work) as (addresses, _):
            flags = [flag for address in addresses for flag in ("--lender", address)]
            return self.run("paged", children, [str(self.args.percent), *flags, "--disk", str(self.work / "slots"), *self.args.flags])

    def swap(self, children):
        size = tree_bytes(self.args.keys, children)
        with disk_swap(self.work, 2 * size + 64 * MIB), Cgroup(size * self.args.percent // 100 + PROGRAM_BYTES) as group:
            found = self.run("plain", children, before_exec=group.join)
            if group.helped:
                self.notes.append(f"swap, {children} children: reclaim was stuck {group.helped} times and got more memory for a moment")
            return found

    def row(self, children):
        """Microseconds of a search by way."""
        found, sums = {}, set()
        for way in self.args.ways:
            try:
                line = getattr(self, way)(children)
            except Unavailable as why:
                self.notes.append(f"{WAYS[way]}, {children} children: {why}")
                continue
            found[way] = float(line["search_us"])
            sums.add(line["sum"])
            assert int(line["bytes"]) == tree_bytes(self.args.keys, children), "the tree is as large as is said here"
        if len(sums) > 1:
            sys.exit(f"btree: {children} children: the ways found different records: {sums}")
        return found


def svg(rows, title):
    """Search time by children, both axes logarithmic."""
    wide, high, left, right, top, bottom = 720, 420, 70, 130, 50, 55
    times = [us for _, found in rows for us in found.values()]
    low, most = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    most = max(most, low + 1)
    first, last = math.log2(rows[0][0]), math.log2(rows[-1][0])
    x = lambda children: left + (wide - left - right) * ((math.log2(children) - first) / (last - first) if last > first else 0.5)
    y = lambda us: top + (high - top - bottom) * (most - math.log10(us)) / (most - low)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" font-family="sans-serif" font-size="12">',
           f'<rect width="{wide}" height="{high}" fill="white"/><text x="{left}" y="24" font-size="15">{title}</text>']
    for power in range(low, most + 1):
        at = y(10.0**power)
        out.append(f'<line x1="{left}" x2="{wide - right}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>'
                   f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
    for children, _ in rows:
        out.append(f'<text x="{x(children):.1f}" y="{high - bottom + 18}" text-anchor="middle" font-size="10">{children}</text>')
    out.append(f'<text x="{(left + wide - right) / 2}" y="{high - 12}" text-anchor="middle">children of a node</text>'
               f'<text transform="translate(16 {(top + high - bottom) / 2}) rotate(-90)" text-anchor="middle">us for a search</text>')
    labels = []
    for way, name in WAYS.items():
        points = [(x(children), y(found[way])) for children, found in rows if way in found]
        if not points:
            continue
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        out.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS[way]}" stroke-width="2"/>')
        out += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{COLOURS[way]}"/>' for a, b in points]
        labels.append((points[-1][1], name, COLOURS[way]))
    below = -math.inf
    for at, name, colour in sorted(labels):
        below = max(at + 4, below + 15)
        out.append(f'<text x="{wide - right + 10}" y="{below:.1f}" fill="{colour}">{name}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    release = ROOT / "target" / "release"
    numbers = lambda text: [int(number) for number in text.split(",")]
    parser.add_argument("--loam", default=str(release / "loam"), help="the executable")
    parser.add_argument("--btree", default=str(release / "examples" / "btree"), help="the example")
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--children", type=numbers, default=[4, 16, 64, 96, 128, 160, 168, 171, 176, 216, 384, 512], help="as in figure 9")
    parser.add_argument("--searches", type=int, default=500_000)
    parser.add_argument("--percent", type=int, default=25, help="of the tree that may be here")
    parser.add_argument("--ways", type=lambda text: text.split(","), default=list(WAYS), help="any of " + ",".join(WAYS))
    parser.add_argument("--flags", type=str.split, default=[], help="more flags of `loam run` for the paged region, such as \"--page 4K\"")
    parser.add_argument("--limit", type=int, default=1800, help="seconds after which a run is ended")
    parser.add_argument("--dir", default="/var/tmp", help="folder on the disk that is swapped to")
    parser.add_argument("--out", help="write the table here too")
    parser.add_argument("--svg", help="draw the figure here")
    args = parser.parse_args()
    if set(args.ways) - set(WAYS) or not 0 < args.percent <= 100 or min(args.children) < 2:
        parser.error("--ways are " + ",".join(WAYS) + ", --percent is from 1 to 100, children are at least 2")
    args.loam, args.btree = str(Path(args.loam).resolve()), str(Path(args.btree).resolve())
    for path, how in (args.loam, "make build"), (args.btree, "cargo build --release -p loam --example btree"):
        if not os.access(path, os.X_OK):
            parser.error(f"{path} is not there: {how}")
    # Kill unwinds the stack, so that swap and cgroup are taken down.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    args.children.sort()
    work = Path(tempfile.mkdtemp(prefix="loam-btree-", dir=args.dir))
    lines, rows = [], []
    try:
        bench = Bench(args, work)
        emit = lambda line: (lines.append(line), print(line, flush=True))
        emit("| children | tree | " + " | ".join(f"{WAYS[way]}, us" for way in args.ways) + " |")
        emit("| --- |" + " --- |" * (len(args.ways) + 1))
        for children in args.children:
            found = bench.row(children)
            if found:
                rows.append((children, found))
            cells = [f"{found[way]:.2f}" if way in found else "n/a" for way in args.ways]
            emit(f"| {children} | {tree_bytes(args.keys, children) // MIB} MiB | " + " | ".join(cells) + " |")
        emit("")
        emit(f"{args.keys:,} keys, {args.searches:,} searches; {args.percent}% of the tree here (paged, swap). Linux {os.uname().release}, "
             f"{os.cpu_count()} cores; {time.strftime('%Y-%m-%d')}.")
        for note in bench.notes:
            emit(f"- {note}")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if args.out:
        Path(args.out).write_text("\n".join(lines) + "\n", encoding="utf-8")
    if args.svg and rows:
        title = f"A search among {args.keys:,} keys, {args.percent}% of the tree here"
        Path(args.svg).write_text(svg(rows, title), encoding="utf-8")


if __name__ == "__main__":
    main()
