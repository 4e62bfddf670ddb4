#!/usr/bin/env python3
"""Records the page references of a program as an oracleGeneral trace, through valgrind's lackey.

    bench/replay/lackey.py --out gcc.oracleGeneral [--max N] [--page BYTES] -- gcc -O2 -c big.c

Instructions, loads and stores, in order, consecutive ones to one page too. The program is ended after --max references. For the
comparison with libCacheSim (compare.py); `loam trace record` is the tool for everything else. Needs valgrind and numpy.
"""

import argparse
import os
import signal
import subprocess
import sys

import numpy as np

RECORD = np.dtype([("time", "<u4"), ("object", "<u8"), ("size", "<u4"), ("next", "<i8")])


def record(command, most, page_bytes):
    """Page numbers of the first `most` references."""
    shift = page_bytes.bit_length() - 1
    read, write = os.pipe()
    valgrind = ["valgrind", "--tool=lackey", "--trace-mem=yes", f"--log-fd={write}", *command]
    program = subprocess.Popen(valgrind, pass_fds=[write], stdout=subprocess.DEVNULL)
    os.close(write)
    pages = []
    with os.fdopen(read, "rb", buffering=1 << 20) as log:
        for line in log:
            # "I  04001000,3" or " L 1ffeffe7e8,8"; all else is valgrind's own.
            if line[:3] in (b"I  ", b" L ", b" S ", b" M "):
                pages.append(int(line[3 : line.index(b",")], 16) >> shift)
                if len(pages) >= most:
                    program.send_signal(signal.SIGKILL)
                    break
    program.wait()
    return np.array(pages, dtype=np.uint64)


def with_next_uses(pages):
    """Records of the references, each with the number of the next one to its page."""
    order = np.argsort(pages, kind="stable")
    records = np.zeros(len(pages), RECORD)
    records["object"] = pages
    records["size"] = 1
    records["next"] = -1
    same = pages[order[1:]] == pages[order[:-1]]
    records["next"][order[:-1][same]] = order[1:][same]
    return records


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--max", type=int, default=10_000_000)
    parser.add_argument("--page", type=int, default=4096)
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    if args.page & (args.page - 1) or args.page < 256:
        sys.exit("lackey.py: a page is a power of two of at least 256 bytes")
    pages = record(args.command, args.max, args.page)
    if len(pages) == 0:
        sys.exit(f"lackey.py: no reference came from {args.command[0]}: does `valgrind --tool=lackey` run it?")
    with_next_uses(pages).tofile(args.out)
    print(f"{args.out}: {len(pages):,} references to {len(np.unique(pages)):,} pages")


if __name__ == "__main__":
    main()
