#!/usr/bin/env python3
"""What a lost lender costs: one of four is killed in the middle of a run.

    sudo bench/lost.py [--loam target/release/loam] [--mib 128] [--passes 4] [--repeat 5] [--room 1.0] [--dir DIR]

Five network namespaces, each with a `loam node`; on the first runs bench/walk.c at 25% of its memory, the other four have --room times
what it needs, in equal parts. In turn: with all four, with three from the start, and with four of which one is killed (-9) after half of the
first one's time. The loss may cost what its capacity was worth for the rest of the run, half of the difference between the first two;
what it costs beyond that is printed as a part of the run. Every output is compared with a plain run's. Needs root.
"""

import argparse
import contextlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from placement import MIB, ROOT, borrow, cluster, network

LENDERS = 4


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--loam", default=str(ROOT / "target/release/loam"))
    parse.add_argument("--mib", type=int, default=128)
    parse.add_argument("--passes", type=int, default=4)
    parse.add_argument("--repeat", type=int, default=5)
    parse.add_argument("--room", type=float, default=1.0)
    parse.add_argument("--page", default="8K")
    parse.add_argument("--prefetch", default="on")
    parse.add_argument("--dir", default="/var/tmp")
    args = parse.parse_args()
    if os.geteuid():
        sys.exit("network namespaces need root")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=args.dir)))
        (folder / "slots").mkdir()
        subprocess.run(["cc", "-O2", "-o", folder / "walk", ROOT / "bench/walk.c"], check=True)
        plain = subprocess.run([folder / "walk", str(args.mib), str(args.passes), "anon"], capture_output=True)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        args.local, share = peak // 4, int(peak * 3 // 4 * args.room) // LENDERS // 4096 * 4096
        names = stack.enter_context(network(f"ll{os.getpid() & 0xfffff:x}", 1 + LENDERS))

        def once(lenders, kill_after_s=None):
            with cluster(args.loam, names[:1 + lenders], [MIB] + [share] * lenders, folder) as (socket, nodes):
                killer = threading.Timer(kill_after_s or 0, nodes[-1].kill)
                if kill_after_s:
                    killer.start()
                seconds, output, summary = borrow(args, names[0], socket, "gms", folder, None)
                killer.cancel()
            assert output == plain.stdout, "another output than without Loam"
            assert summary["lenders_lost"] == bool(kill_after_s), summary["lenders"]
            return seconds

        times = {"four": [], "three": [], "killed": []}
        for _ in range(args.repeat):
            times["four"].append(once(LENDERS))
            times["three"].append(once(LENDERS - 1))
            times["killed"].append(once(LENDERS, times["four"][-1] / 2))
        four, three, killed = (statistics.median(values) for values in times.values())
        for what, values in times.items():
            print(f"{what:7} {statistics.median(values):.2f} s   ({', '.join(f'{v:.2f}' for v in values)})")
        fair = four + max(0, three - four) / 2
        print(f"beyond its capacity's share: {killed / fair - 1:+.1%} of the run (bar +10%)")


if __name__ == "__main__":
    main()
