"""A pool of workers that each go over all that their parent has built.

    pool.py PAIRS WORKERS [TASKS]

Each task looks at one in TASKS (40) of the pairs, all over memory: it writes the counts of their references, so that all of it is copied, worker by worker.
Prints a hash of what the tasks have found, which does not depend on who did which.
"""

import hashlib
import multiprocessing
import sys

PAIRS, WORKERS = int(sys.argv[1]), int(sys.argv[2])
TASKS = int(sys.argv[3]) if len(sys.argv) > 3 else 40
DATA = [(f"key{n}", n * n) for n in range(PAIRS)]


def work(task):
    digest, mine = hashlib.sha256(), {}
    for n in range(task, PAIRS, TASKS):
        key, square = DATA[n]
        digest.update(key.encode())
        mine[key] = square
    return digest.hexdigest(), len(mine), sum(mine.values())


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    with multiprocessing.Pool(WORKERS) as pool:
        found = pool.map(work, range(TASKS), chunksize=1)
    print(hashlib.sha256(repr(found).encode()).hexdigest())
