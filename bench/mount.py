#!/usr/bin/env python3
"""`loam mount` beside what it is made of: the source itself, and one plain TCP stream.

    sudo bench/mount.py [--loam target/release/loam] [--mib 512] [--repeat 5] [--rate 1gbit,10gbit,none] [--disk-mb N] [--touch-mb N] [--dir DIR]

Two mounts of one source, each in a network namespace, with a cable between them of each --rate (tbf; `none`: as fast as memory). Per
round, in turn:
    direct   the file is read from the source, nothing cached
    cold     the same through the first mount, nothing cached anywhere: its memory is new
    second   through the second mount: all comes from the first one's memory
    tcp      one TCP stream between a process in each namespace, 1 MiB at a time, into a buffer
Prints medians and two ratios: cold over direct, second over tcp. The page cache is dropped before each
(/proc/sys/vm/drop_caches), so it needs root. A virtual disk may still be cached by its host, and answers as it likes; with --disk-mb whoever reads it
gets no more than so many megabytes a second (a blkio cgroup, version 1), as from a disk of that speed. And its host may take memory that has been free for
a while, and has to find it again when it is used (page reporting): with --touch-mb so much is touched and freed before each read, so that it is there.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from placement import MIB, ROOT, ip
from write_cache import Slow


def drop_caches(touch_mb=0):
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")
    if touch_mb:
        code = "import sys\nb=bytearray(int(sys.argv[1])<<20)\nb[::4096]=bytes([1])*(len(b)//4096)"
        subprocess.run([sys.executable, "-c", code, str(touch_mb)], check=True, timeout=120)


def read(path, disk=None):
    """Reads a file in order, 1 MiB at a time, in a process of its own, on that disk. Returns bytes a second."""
    code = ("import os,sys,time\nf=os.open(sys.argv[1],os.O_RDONLY)\nb=bytearray(1<<20)\nn=0\nt=time.monotonic()\n"
            "while k:=os.readv(f,[b]): n+=k\nprint(n/(time.monotonic()-t))")
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, timeout=300, check=True,
                          preexec_fn=disk and disk.join)
    return float(done.stdout)


SEND = """
import socket, sys
with socket.create_connection(("10.97.0.1", int(sys.argv[1]))) as stream:
    block = bytes(1 << 20)
    for _ in range(int(sys.argv[2])): stream.sendall(block)
"""
RECEIVE = """
import socket, sys, time
listener = socket.create_server(("10.97.0.1", 0))
print(listener.getsockname()[1], flush=True)
stream, _ = listener.accept()
block, count, began = bytearray(1 << 20), 0, None
while got := stream.recv_into(block):
    began, count = began or time.monotonic(), count + got
print(count / (time.monotonic() - began))
"""


def inside(namespace):
    """A command's beginning: on that machine as far as the network is concerned, among our own mounts."""
    return ["nsenter", f"--net=/run/netns/{namespace}"]


def tcp(names, mib):
    """One stream from the second namespace to the first. Returns bytes a second."""
    receiver = subprocess.Popen([*inside(names[0]), sys.executable, "-c", RECEIVE], stdout=subprocess.PIPE, text=True)
    port = receiver.stdout.readline().strip()
    subprocess.run([*inside(names[1]), sys.executable, "-c", SEND, port, str(mib)], check=True, timeout=300)
    rate = float(receiver.stdout.readline())
    receiver.wait(timeout=10)
    return rate


@contextlib.contextmanager
def cable():
    """Two namespaces with a cable between them."""
    names = [f"lm{os.getpid() & 0xfffff:x}{end}" for end in "ab"]
    try:
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", names[0], "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", names[1])
        for n, name in enumerate(names):
            ip("-n", name, "addr", "add", f"10.97.0.{n + 1}/24", "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=20)


def limit(names, rate):
    for name in names:
        tc = [*inside(name), "tc", "qdisc"]
        subprocess.run([*tc, "del", "dev", "cable", "root"], capture_output=True, timeout=20)
        if rate != "none":
            subprocess.run([*tc, "add", "dev", "cable", "root", "tbf", "rate", rate, "burst", "1mb", "latency", "20ms"],
                           check=True, timeout=20)


class Mount:
    def __init__(self, loam, disk, namespace, source, at, *flags):
        at.mkdir(exist_ok=True)
        self.loam, self.at = loam, at
        subprocess.run([*inside(namespace), loam, "mount", source, at, "--cache", "2G", "--name", "bench", "--insecure",
                        *flags], check=True, timeout=30, capture_output=True, preexec_fn=disk and disk.join)

    def figure(self, name):
        return json.loads(os.getxattr(self.at, "user.loam.figures"))[name]

    def end(self):
        subprocess.run([self.loam, "unmount", self.at], check=True, timeout=30)


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--loam", default=str(ROOT / "target/release/loam"))
    parse.add_argument("--mib", type=int, default=512)
    parse.add_argument("--repeat", type=int, default=5)
    parse.add_argument("--rate", default="1gbit,10gbit,none")
    parse.add_argument("--disk-mb", type=int)
    parse.add_argument("--touch-mb", type=int, default=0)
    parse.add_argument("--dir", default="/var/tmp")
    args = parse.parse_args()
    if os.geteuid():
        sys.exit("dropping the page cache needs root")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=args.dir)))
        names = stack.enter_context(cable())
        disk = args.disk_mb and Slow("mount", folder, args.disk_mb * 1_000_000)
        if disk:
            stack.callback(disk.remove)
        (folder / "source").mkdir()
        with open(folder / "source/file", "wb") as file:
            for _ in range(args.mib):
                file.write(os.urandom(MIB))
        time.sleep(0.5)  # what has just changed is not kept
        print("| cable | direct | cold | second | tcp | cold over direct (bar 0.90) | second over tcp (bar 0.80) |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for rate in args.rate.split(","):
            limit(names, rate)
            rates = {what: [] for what in ("direct", "cold", "second", "tcp")}
            for _ in range(args.repeat):
                round_of(args, disk, folder, names, rates)
            median = {what: statistics.median(values) for what, values in rates.items()}
            shown = " | ".join(f"{value / 1e9:.2f} GB/s" for value in median.values())
            print(f"| {rate} | {shown} | {median['cold'] / median['direct']:.2f} | {median['second'] / median['tcp']:.2f} |",
                  flush=True)


def round_of(args, disk, folder, names, rates):
    drop_caches(args.touch_mb)
    rates["direct"].append(read(folder / "source/file", disk))
    first = Mount(args.loam, disk, names[0], folder / "source", folder / "a", "--listen", "10.97.0.1:7080")
    try:
        second = Mount(args.loam, disk, names[1], folder / "source", folder / "b", "--listen", "10.97.0.2:7080",
                       "--peer", "10.97.0.1:7080")
        try:
            time.sleep(1)
            drop_caches(args.touch_mb)
            rates["cold"].append(read(folder / "a/file"))
            time.sleep(0.5)
            drop_caches(args.touch_mb)
            rates["second"].append(read(folder / "b/file"))
            peers, source = second.figure("runs_from_peers"), second.figure("runs_from_source")
            assert source <= peers // 50, f"the second reader read the source: {source} of {peers}"
        finally:
            second.end()
    finally:
        first.end()
    rates["tcp"].append(tcp(names, args.mib))


if __name__ == "__main__":
    main()
