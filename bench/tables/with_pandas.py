"""A merge, a group, a sort and a pivot of ROWS rows in pandas; prints digests of the results."""

import hashlib
import sys

import numpy as np
import pandas as pd

rows = int(sys.argv[1])
random = np.random.default_rng(1)
a = pd.DataFrame({"k": random.integers(0, rows, rows), "v": random.integers(0, 1 << 40, rows), "g": random.integers(0, 1000, rows)})
b = pd.DataFrame({"k": random.integers(0, rows, rows // 2), "w": random.integers(0, 1 << 40, rows // 2)})


def show(frame):
    print(hashlib.sha256(frame.to_csv().encode()).hexdigest(), frame.shape)


show(a.merge(b, on="k").groupby("g").agg({"v": "sum", "w": "max"}))
show(a.sort_values(["g", "v"]).head(1000))
show(a.pivot_table(index=a.k % 97, columns=a.g % 31, values="v", aggfunc="sum"))
