"""Builds and sorts large dictionaries; prints a digest of every step. No hash randomisation shows in the output."""

import gc
import hashlib
import sys

COUNT = int(sys.argv[1])


def numbers(seed, count):
    x = seed
    for _ in range(count):
        x = (x * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
        yield x >> 24


def digest(name, items):
    h = hashlib.sha256()
    n = 0
    for item in items:
        h.update(repr(item).encode())
        n += 1
    print(name, n, h.hexdigest())


by_name = {f"name-{n:x}": (n, n % 1009) for n in numbers(1, COUNT)}
digest("built", list(by_name.items())[:: max(1, COUNT // 50000)])
groups = {}
for name, (number, remainder) in by_name.items():
    groups.setdefault(remainder, []).append((number, name))
for remainder in groups:
    groups[remainder].sort()
digest("groups", ((r, g[0], g[-1], len(g)) for r, g in sorted(groups.items())))
ordered = sorted(by_name.items(), key=lambda item: (item[1][1], item[0]))
digest("ordered", ordered[::7])
for name in [name for i, name in enumerate(by_name) if i % 3 == 0]:
    del by_name[name]
gc.collect()
for n in numbers(2, COUNT // 4):
    by_name[f"late-{n:x}"] = (n, 0)
digest("rebuilt", sorted(by_name)[::5])
