"""Builds, orders, rewrites and thins a large dictionary of long strings; prints a digest of every step. The values are most of
the memory and are visited in the order in which they were built. No hash randomisation shows in the output."""

import gc
import hashlib
import sys

COUNT = int(sys.argv[1])
MASK = 0xFFFFFFFFFFFFFFFF


def numbers(seed, count):
    x = seed
    for _ in range(count):
        x = (x * 6364136223846793005 + 1442695040888963407) & MASK
        yield x >> 24


def text(n):
    """2,000 to 4,000 characters that depend on all of n."""
    word = f"{n:x}-{n % 1009}-{n * 2654435761 & MASK:x}|"
    return (word * 120)[: 2000 + n % 2000]


def digest(name, items):
    h = hashlib.sha256()
    n = 0
    for item in items:
        h.update(item.encode())
        n += 1
    print(name, n, h.hexdigest(), flush=True)


texts = {}
for n in numbers(1, COUNT):
    texts[f"name-{n:x}"] = text(n)
digest("built", (value for i, value in enumerate(texts.values()) if i < COUNT // 4))
names = sorted(texts)
digest("names", names)
# Every third value gets longer, so it moves.
for i, name in enumerate(texts):
    if i % 3 == 0:
        texts[name] = texts[name][::-1] + name
digest("rewritten", texts.values())
for name in names[: COUNT // 10]:
    del texts[name]
gc.collect()
for n in numbers(2, COUNT // 10):
    texts[f"late-{n:x}"] = text(n)
digest("rebuilt", (value for name, value in texts.items() if name.startswith("late")))
digest("names", sorted(texts))
