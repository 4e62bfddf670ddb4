"""A join, groups, sorts and ranks of ROWS rows in Polars; prints digests of the results."""

import hashlib
import sys

import numpy as np
import polars as pl

rows = int(sys.argv[1])
random = np.random.default_rng(1)
a = pl.DataFrame({"k": random.integers(0, rows, rows), "v": random.random(rows), "g": random.integers(0, 1000, rows)})
a = a.with_columns(s=pl.lit("n") + pl.col("g").cast(pl.String))
b = pl.DataFrame({"k": random.integers(0, rows, rows // 2), "w": random.integers(0, 1 << 40, rows // 2)})


def show(frame):
    print(hashlib.sha256(frame.write_csv().encode()).hexdigest(), frame.shape)


show(a.join(b, on="k", how="inner").group_by("g").agg(pl.len(), pl.col("w").sum()).sort("g"))
show(a.sort("s", "v").head(1000))
show(a.group_by("s").agg(pl.col("v").min().alias("least"), pl.col("v").max().alias("most"), pl.len()).sort("s"))
show(a.with_columns(rank=pl.col("v").rank().over("g")).filter(pl.col("rank") <= 2).sort("g", "rank"))
