#!/usr/bin/env bash
# Runs the end-to-end tests: executables whose tests mostly wait beside each other, then the others one after the other, as cargo does by
# itself. (A test that measures takes its turn alone anyway: `place::alone`.) LOAM_BIN is the executable under test.
set -uo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}

# For half of the time and more nobody runs in these: nodes are missed, leases end, requests are given up. The longest first.
waiting=(liars mount etcd tls_cluster cluster_under_load borrow_from_cluster reserve cluster)
at_once=5

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
run() { "$cargo" test --locked -p loam-tests "$@" -- --test-threads=4; }

"$cargo" test --locked -p loam-tests --no-run || exit
failed=""
for name in "${waiting[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "$at_once" ]; do wait -n; done
    { run --test "$name" >"$logs/$name" 2>&1 || touch "$logs/$name.failed"; } &
done
wait
for name in "${waiting[@]}"; do
    cat "$logs/$name"
    [ ! -e "$logs/$name.failed" ] || failed+=" $name"
done
[ -z "$failed" ] || { echo "tests/e2e.sh: failed:$failed" >&2; exit 1; }

others=()
for file in tests/tests/*.rs; do
    name=$(basename "$file" .rs)
    [[ " ${waiting[*]} " == *" $name "* ]] || others+=(--test "$name")
done
run --lib "${others[@]}"
