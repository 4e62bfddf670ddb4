#!/usr/bin/env python3
"""What a fetch plan is worth to the kernels of bench/kernels: the default, `eager`, beside `full`, with page sizes that are found.

    bench/plans.py [--ratio 25] [--kernels sp,himeno] [--plans full,eager] [--page auto] [--prefetch on] [--repeat 3]
                   [--rate none,10gbit,1gbit] [--limit SECONDS] [--out FILE.json]

The plans run in turns; each row has the medians of --repeat runs, the time of the first plan over that of each other, and what threads waited for: the
base page that they touched (sp) and the rest of its page (pw). Every output is compared with the plain run's. With a --rate other than `none` the lenders
are on another machine as far as the network is concerned, at the other end of a cable of that rate (network namespaces, tbf; root). What takes longer than
the limit counts with the limit.
"""
import argparse
import contextlib
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time

from mount import cable, inside, limit as limit_rate
from pages import KERNELS, LOAM, borrowed, fitting

PORTS = (7071, 7072)


@contextlib.contextmanager
def lenders(names):
    """Two lenders in the first of these namespaces. Yields the options for a run that borrows from them."""
    running, options = [], []
    try:
        for port in PORTS:
            at = f"10.97.0.1:{port}"
            command = [*inside(names[0]), LOAM, "lend", "2G", "--listen", at, "--insecure"]
            running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            options += ["--lender", at]
        time.sleep(1)
        if any(lender.poll() is not None for lender in running):
            sys.exit(f"a lender did not start: {' '.join(command)}")
        yield options
    finally:
        for lender in running:
            lender.terminate()
        for lender in running:
            lender.wait(timeout=20)


def measured(kernel, rate, args, where):
    """A row: what each plan took, and what threads waited for."""
    command, plain, peak = fitting(kernel, args.ratio, 1)
    plans = args.plans.split(",")
    runs = {plan: [] for plan in plans}
    for _ in range(args.repeat):
        for plan in plans:
            options = ["--fetch-plan", plan, "--prefetch", args.prefetch]
            took, out, summary = borrowed(command, peak * args.ratio // 100, args.page, "on", args.limit, options=options, **where)
            if took is not None and out != plain:
                sys.exit(f"{kernel} with the plan {plan}: the output differs from the plain run's")
            waits = summary["time_s"] if summary else {}
            runs[plan].append((took, waits.get("sp_latency"), waits.get("page_wait")))
    known = lambda took: args.limit if took is None else took
    middle = lambda values: statistics.median(values) if values else None
    row = {"kernel": kernel, "mib": peak, "rate": rate, "ratio_percent": args.ratio, "plans": {}}
    for plan, took in runs.items():
        ended = [run for run in took if run[0] is not None]
        row["plans"][plan] = {
            "seconds": [run[0] for run in took],
            "median_s": statistics.median(known(run[0]) for run in took),
            "sp_latency_s": middle([run[1] for run in ended]),
            "page_wait_s": middle([run[2] for run in ended]),
        }
    return row


def shown(row, plans):
    first, cells = row["plans"][plans[0]]["median_s"], []
    for plan in plans:
        of = row["plans"][plan]
        split = "" if of["sp_latency_s"] is None else f" (sp {of['sp_latency_s']:.1f}, pw {of['page_wait_s']:.1f})"
        cells.append(f"{of['median_s']:.1f}{split}")
    gains = [f"{first / row['plans'][plan]['median_s']:.2f}" for plan in plans[1:]]
    return f"| {row['kernel']} | {row['mib']} | {row['rate']} | " + " | ".join(cells + gains) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--ratio", type=int, default=25)
    parser.add_argument("--kernels", default=",".join(KERNELS))
    parser.add_argument("--plans", default="full,eager")
    parser.add_argument("--page", default="auto")
    parser.add_argument("--prefetch", default="on")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--rate", default="none,10gbit")
    parser.add_argument("--limit", type=float, default=60)
    parser.add_argument("--out")
    args = parser.parse_args()
    plans, rows = args.plans.split(","), []
    if os.geteuid() and args.rate != "none":
        sys.exit("a cable needs root: --rate none does without")
    print("| kernel | MiB | rate | " + " | ".join(plans + [f"{plans[0]} / {plan}" for plan in plans[1:]]) + " |")
    print("| --- " * (2 + 2 * len(plans)) + "|")
    for rate in args.rate.split(","):
        with contextlib.ExitStack() as stack:
            where = {}
            if rate != "none":
                names = stack.enter_context(cable())
                limit_rate(names, rate)
                where = {"lenders": stack.enter_context(lenders(names)), "prefix": inside(names[1])}
            of_rate = []
            for kernel in args.kernels.split(","):
                of_rate.append(measured(kernel, rate, args, where))
                print(shown(of_rate[-1], plans), flush=True)
        for plan in plans[1:]:
            ratios = [row["plans"][plans[0]]["median_s"] / row["plans"][plan]["median_s"] for row in of_rate]
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"\n{rate}: {plans[0]} takes {mean:.2f} of the time of {plan} (geometric mean of {len(ratios)}).\n", flush=True)
        rows += of_rate
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
