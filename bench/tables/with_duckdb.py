"""Joins, groups, ranks and sorts of ROWS rows in DuckDB; prints digests of the results."""

import hashlib
import sys

import duckdb

rows = int(sys.argv[1])
db = duckdb.connect()
db.execute("set threads = 2; set memory_limit = '16GB'")
db.execute(f"create table a as select (i * 7919) % {rows} as k, i as v, hash(i) % 1000 as g, 'name' || (i % 5000) as s from range({rows}) t(i)")
db.execute(f"create table b as select (i * 104729) % {rows} as k, i * 2 as w from range({rows // 2}) t(i)")
for query in [
    "select a.g, count(*), sum(a.v), sum(b.w) from a join b using (k) group by a.g order by a.g",
    "select s, g, count(*), sum(v) from a group by s, g order by s, g limit 10000",
    "select k, v, row_number() over (partition by g order by v desc) r from a qualify r <= 3 order by g, r",
    "select * from (select * from a order by s, v desc) limit 1000 offset 500000",
]:
    result = db.execute(query).fetchall()
    print(hashlib.sha256(repr(result).encode()).hexdigest(), len(result))
