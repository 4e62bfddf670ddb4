#!/usr/bin/env python3
"""Where pages should go: GMS beside N-chance on nine machines with skewed idle memory (gms-1995, section 5.5 and figure 9).

    sudo bench/placement.py [--loam target/release/loam] [--mib 128] [--passes 3] [--repeat 3] [--ratio 7]
                            [--page 4K] [--dir DIR] [--json FILE]

Nine network namespaces, each with a `loam node`. On the first runs one program (bench/walk.c: it checks every word that it reads) at 25%
of its memory. The idle memory that it needs, exactly, is with the other eight: two of them have 75% of it. N-chance gets the same, and
one and a half times and twice as much. As in the paper, other machines' memory has one copy of a page (`--durability disk`). The disk is throttled by a blkio cgroup to the paper's ratio: a random read takes
--ratio times as long as a remote getpage, which is measured first.

Prints a markdown table: seconds (median of --repeat), where the faults were answered, and what the other programs of a busy node (one of the six
with little idle memory) feel of it (figure 10): their memory is never taken, so that is what the node's daemon takes of a processor. Needs
root. Nothing is left behind.
"""

import argparse
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MIB = 1 << 20
LENDERS = 8
BIG = 2  # have 75% of the idle memory
START_S, RUN_S = 20, 900


def ip(*args):
    subprocess.run(["ip", *args], check=True, capture_output=True, timeout=20)


@contextlib.contextmanager
def network(tag, count):
    """`count` namespaces, each with a cable to one bridge; yields their names. Machine n is 10.98.0.n+1."""
    hub, names = f"{tag}hub", [f"{tag}n{n}" for n in range(count)]
    try:
        ip("netns", "add", hub)
        ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", hub, "link", "set", "bridge", "up")
        for n, name in enumerate(names):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", hub, "link", "add", f"port{n}", "type", "veth", "peer", "name", "cable", "netns", name)
            ip("-n", hub, "link", "set", f"port{n}", "master", "bridge", "up")
            ip("-n", name, "addr", "add", f"10.98.0.{n + 1}/24", "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")
        yield names
    finally:
        for name in [*names, hub]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=20)


@contextlib.contextmanager
def cluster(loam, names, lends, folder):
    """A node in each namespace, number n lending lends[n] bytes. Yields the first one's socket, and the
    processes, once it sees them all."""
    nodes = []
    try:
        for n, (name, lend) in enumerate(zip(names, lends)):
            command = ["ip", "netns", "exec", name, loam, "node", "--insecure", "--name", f"m{n}",
                       "--lend", str(lend), "--listen", f"10.98.0.{n + 1}:7070",
                       "--join", "10.98.0.1:7070", "--socket", str(folder / f"m{n}.sock")]
            log = open(folder / f"m{n}.log", "ab")
            nodes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        socket, deadline = folder / "m0.sock", time.monotonic() + START_S
        while True:
            status = subprocess.run([loam, "status", "--json", "--socket", socket], capture_output=True, timeout=20)
            seen = (json.loads(status.stdout or b"{}").get("clusters") or [{}])[0]
            known = [node for node in seen.get("nodes", []) if node.get("lent_bytes")]
            if len(known) == len(names) and seen.get("epoch", {}).get("number"):
                break
            if time.monotonic() > deadline:
                sys.exit(f"the nodes do not find each other within {START_S} s: see {folder}")
            time.sleep(0.2)
        time.sleep(3)  # an epoch that knows all of them
        yield socket, nodes
    finally:
        for node in nodes:
            node.send_signal(signal.SIGTERM)
        for node in nodes:
            try:
                node.wait(timeout=10)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()


class Throttle:
    """A version 1 blkio cgroup that limits random reads of the disk under a folder."""

    def __init__(self, folder):
        root = Path("/sys/fs/cgroup/blkio")
        if not (root / "blkio.throttle.read_iops_device").exists():
            sys.exit("no blkio cgroup (version 1) on this machine: the disk cannot be throttled")
        device = os.stat(folder).st_dev
        self.device = f"{os.major(device)}:{os.minor(device)}"
        self.path = root / f"loam-placement-{os.getpid()}"

    def __enter__(self):
        self.path.mkdir()
        return self

    def limit(self, reads_per_s):
        (self.path / "blkio.throttle.read_iops_device").write_text(f"{self.device} {reads_per_s}")

    def join(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def __exit__(self, *_):
        for _ in range(50):
            with contextlib.suppress(OSError):
                self.path.rmdir()
                return
            time.sleep(0.1)


def processor_s(node):
    """Seconds of processor that a process has used."""
    fields = Path(f"/proc/{node.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def borrow(args, name, socket, placement, folder, throttle):
    """One run of the program. Returns its seconds, its output, and its summary."""
    summary = folder / "summary.json"
    command = ["ip", "netns", "exec", name, args.loam, "run", "--quiet", "--local", str(args.local),
               "--page", args.page, "--prefetch", args.prefetch, "--durability", "disk", "--disk", str(folder / "slots"),
               "--summary", str(summary)]
    command += ["--placement", placement] if placement == "none" else ["--node", str(socket), "--placement", placement]
    command += ["--", str(folder / "walk"), str(args.mib), str(args.passes), "anon"]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, timeout=RUN_S, preexec_fn=throttle.join if throttle else None)
    seconds = time.monotonic() - began
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.returncode}: {done.stderr.decode()}")
    return seconds, done.stdout, json.loads(summary.read_text())


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--loam", default=str(ROOT / "target/release/loam"))
    parse.add_argument("--mib", type=int, default=128)
    parse.add_argument("--passes", type=int, default=3)
    parse.add_argument("--repeat", type=int, default=3)
    parse.add_argument("--ratio", type=float, default=7)
    parse.add_argument("--page", default="4K")
    parse.add_argument("--prefetch", default="off")
    parse.add_argument("--dir", default="/var/tmp")
    parse.add_argument("--json")
    args = parse.parse_args()
    if os.geteuid():
        sys.exit("network namespaces and cgroups need root")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=args.dir)))
        (folder / "slots").mkdir()
        subprocess.run(["cc", "-O2", "-o", folder / "walk", ROOT / "bench/walk.c"], check=True)
        began = time.monotonic()
        plain = subprocess.run([folder / "walk", str(args.mib), str(args.passes), "anon"], capture_output=True)
        plain_s = time.monotonic() - began
        names = stack.enter_context(network(f"lp{os.getpid() & 0xfffff:x}", 1 + LENDERS))
        throttle = stack.enter_context(Throttle(folder))
        # Of what the program takes at its largest, a quarter is local.
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        args.local, needed = peak // 4, peak * 3 // 4

        def lends(times):
            big, small = needed * times * 0.75 / BIG, needed * times * 0.25 / (LENDERS - BIG)
            pages = [int(share) // 4096 * 4096 for share in [big] * BIG + [small] * (LENDERS - BIG)]
            return [MIB, *pages]  # the borrower's own machine has none, or next to none

        def measure(what, placement, times, throttled):
            rows = []
            for _ in range(args.repeat):
                with cluster(args.loam, names, lends(times), folder) as (socket, nodes):
                    busy = nodes[1 + BIG:]
                    before = sum(map(processor_s, busy))
                    seconds, output, summary = borrow(args, names[0], socket, placement, folder, throttled)
                    summary["busy_part"] = (sum(map(processor_s, busy)) - before) / seconds / len(busy)
                assert output == plain.stdout, "another output than without Loam"
                rows.append((seconds, summary))
                print(f"  {what}: {seconds:.2f} s, {summary['faults']}", file=sys.stderr)
            return sorted(rows, key=lambda row: row[0])[len(rows) // 2], [row[0] for row in rows]

        (_, roomy), _ = measure("calibration: room for everything", "gms", 4, None)
        # As the program sees it, kernel and wake-up with it: what a random read takes is seen the same way.
        waited_s = sum(roomy["time_s"][part] for part in ("sp_latency", "put_wait", "page_wait"))
        outside_us = 1e6 * (roomy["wall_s"] - waited_s - plain_s) / roomy["faults"]["total"]
        getpage_us = round(1e6 * waited_s / roomy["faults"]["remote"] + outside_us, 1)
        reads_per_s = max(1, round(1e6 / (args.ratio * getpage_us)))
        throttle.limit(reads_per_s)
        print(f"a remote getpage takes {getpage_us} us: the disk may do {reads_per_s} reads a second", file=sys.stderr)
        ways = [("disk alone", "none", 1), ("GMS, idle = needed", "gms", 1), ("N-chance, idle = needed", "n-chance", 1),
                ("N-chance, idle = 1.5 times needed", "n-chance", 1.5), ("N-chance, idle = twice needed", "n-chance", 2)]
        results = {}
        for what, placement, times in ways:
            results[what] = measure(what, placement, times, throttle)
        gms = results["GMS, idle = needed"][0][0]
        print("| | s | of GMS | remote faults | disk faults | sent, MiB | of a busy node's processor |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for what, ((seconds, summary), _) in results.items():
            faults = summary["faults"]
            print(f"| {what} | {seconds:.2f} | {seconds / gms:.2f} | {faults['remote']} | {faults['disk']} | "
                  f"{summary['bytes']['out'] / MIB:.0f} | {summary['busy_part']:.1%} |")
        if args.json:
            table = {what: {"median_s": row[0], "runs_s": runs, "faults": row[1]["faults"]}
                     for what, (row, runs) in results.items()}
            Path(args.json).write_text(json.dumps({"getpage_us": getpage_us, "reads_per_s": reads_per_s, "ways": table}))


if __name__ == "__main__":
    main()
