#!/usr/bin/env python3
"""Page sizes that are found, beside fixed ones: the kernels of bench/kernels at several shares of their memory.

    bench/pages.py [--ratios 10,25] [--sizes 4K,16K,64K,256K,1M] [--kernels sp,himeno] [--ways auto,unmarked,aapc]
                   [--limit SECONDS] [--longer TIMES] [--out FILE.json]

Each row is one run of each way; the ratio is the default's time to that of the best fixed size of the row. Every output is compared with
the plain run's. What takes longer than the limit is shown as such and counts with the limit. --longer has each kernel do so many times its
iterations: by default they are few, and much of a run is finding out.
"""
import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LOAM = os.environ.get("LOAM_BIN", os.path.join(ROOT, "target/release/loam"))
KERNEL = os.path.join(ROOT, "target/release/loam-kernel")
# What each kernel is given: megabytes of data at least, and iterations.
KERNELS = {
    "himeno": (130, 8),
    "bt": (130, 2),
    "sp": (130, 2),
    "ft": (170, 2),
    "cg": (130, 6),
    "is": (136, 3),
    "mg": (140, 2),
    "bfs": (140, 1),
    "join": (130, 1),
}
# Less than this is no budget (`loam run --local`).
LOCAL_MIB_MIN = 32
# Sizes are tried in such steps until the share that is to be local is that much: some kernels' go by powers of two, or of eight.
STEP = 1.15

# Ways to find the size: `--page`, and whether the kernel names its parts.
WAYS = {"auto": ("auto", "on"), "unmarked": ("auto", "off"), "aapc": ("aapc", "on")}


def peak_mib(command):
    """Output and peak resident memory of a plain run."""
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        if status:
            sys.exit(f"{' '.join(command)} failed by itself")
        out.seek(0)
        return out.read(), usage.ru_maxrss // 1024


def fitting(kernel, ratio, longer):
    """The smallest command of which so many per cent are a budget, its output and its peak."""
    mib, iterations = KERNELS[kernel]
    iterations *= longer
    peak = 0
    while peak * ratio // 100 < LOCAL_MIB_MIN:
        command = [KERNEL, kernel, "--bytes", f"{int(mib)}M", "--iterations", str(iterations)]
        plain, peak = peak_mib(command)
        mib *= STEP
    return command, plain, peak


def borrowed(command, local_mib, page, parts, limit, lenders=("--embedded", "2x2G"), options=(), prefix=()):
    """Seconds of the whole run under Loam, or None if it took longer than the limit; its output, and its summary."""
    with tempfile.TemporaryDirectory() as folder:
        summary = os.path.join(folder, "summary.json")
        run = [*prefix, LOAM, "run", *lenders, "--local", f"{local_mib}M", "--page", page, "--quiet", *options]
        run += ["--disk", folder, "--summary", summary, "--", *command, "--parts", parts]
        begin = time.monotonic()
        child = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, _ = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            child.terminate()
            child.communicate()
            return None, None, None
        took = time.monotonic() - begin
        with open(summary, encoding="utf-8") as file:
            return took, out, json.load(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--ratios", default="5,10,25,50")
    parser.add_argument("--sizes", default="4K,16K,64K,256K,1M")
    parser.add_argument("--kernels", default=",".join(KERNELS))
    parser.add_argument("--ways", default=",".join(WAYS), help="what is measured beside the fixed sizes; auto always is")
    parser.add_argument("--limit", type=float, default=60)
    parser.add_argument("--longer", type=int, default=1, help="times its iterations that each kernel does")
    parser.add_argument("--out")
    args = parser.parse_args()
    sizes = args.sizes.split(",")
    found = [name for name in WAYS if name == "auto" or name in args.ways.split(",")]
    ways = [(size, size, "on") for size in sizes] + [(name, *WAYS[name]) for name in found]
    print("| kernel | MiB | local | " + " | ".join(name for name, _, _ in ways), end="")
    print("".join(f" | {name} / best" for name in found) + " |")
    print("| --- " * (3 + len(ways) + len(found)) + "|")
    rows = []
    for kernel in args.kernels.split(","):
        for ratio in map(int, args.ratios.split(",")):
            command, plain, peak = fitting(kernel, ratio, args.longer)
            local = peak * ratio // 100
            times = {}
            for name, page, parts in ways:
                took, out, _ = borrowed(command, local, page, parts, args.limit)
                if took is not None and out != plain:
                    sys.exit(f"{kernel} with {page} pages: the output differs from the plain run's")
                times[name] = took
            known = lambda name: times[name] if times[name] is not None else args.limit
            best = min(map(known, sizes))
            shown = [f"{times[name]:.1f}" if times[name] is not None else f"> {args.limit:.0f}" for name, _, _ in ways]
            # Where no fixed size came to an end it is less than what is shown.
            sign = "" if best < args.limit else "< "
            parts_of_best = [f"{sign}{known(name) / best:.2f}" if times[name] or not sign else "" for name in found]
            print(f"| {kernel} | {peak} | {ratio}% | " + " | ".join(shown + parts_of_best) + " |", flush=True)
            rows.append({"kernel": kernel, "mib": peak, "ratio_percent": ratio, "local_mib": local, "seconds": times})
    # Where nothing came to an end nothing can be compared.
    ended = [row for row in rows if any(time is not None for time in row["seconds"].values())]
    if ended:
        time_of = lambda row, name: row["seconds"][name] or args.limit
        best_of = lambda row: min(time_of(row, size) for size in sizes)
        means = {
            name: math.exp(sum(math.log(time_of(row, name)) for row in ended) / len(ended)) for name, _, _ in ways
        }
        single = min(sizes, key=means.get)
        near = sum(time_of(row, "auto") <= 1.1 * best_of(row) for row in ended)
        print(f"\nOf {len(rows)} rows {len(ended)} came to an end in some way; in {near} of those auto is within a tenth of the best.")
        print("Geometric means: " + ", ".join(f"{name} {value:.2f} s" for name, value in means.items()))
        print(f"The best single fixed size is {single}; auto takes {means['auto'] / means[single]:.2f} of its time.")
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
