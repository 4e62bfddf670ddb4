#!/usr/bin/env bash
# Runs the end-to-end tests: executables whose tests mostly wait beside each other, then some two at a time, and the others one after the other, as cargo does by
# itself. (A test that measures takes its turn alone anyway: `place::alone`.) LOAM_BIN is the executable under test.
set -uo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}

# For half of the time and more nobody runs in these: nodes are missed, leases end, requests are given up (less so in `staged`, of which one test
# runs at a time). The longest first.
waiting=(liars staged mount etcd tls_cluster cluster_under_load borrow_from_cluster reserve cluster mount_fio)
# Each of these but the simulator leaves a fifth to a half of two cores idle, and measures nothing that another could spoil (of the samples of memory 2 in 100 are excused then, as the agent had no core). A test
# that takes its turn alone is not for here: it keeps one of the two places, and waits for the other. The longest first.
halves=(traps faults trees region direct redis sim giveback unprivileged tls plans torture disk)

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
# A shell's background jobs do not hear Ctrl-C: each has a process group of its own (`set -m` below), which is ended with us. What killed tests leave is taken away: their
# machines are network namespaces with the test's process id in their names.
interrupted() {
    for job in $(jobs -p); do kill -- "-$job" 2>/dev/null; done
    sleep 1
    ip netns list 2>/dev/null | grep -oE '^lt[0-9a-f]+-[0-9]+(hub|n[0-9]+)' | while read -r name; do
        pid=${name#lt}
        pid=${pid%%-*}
        # (Of one that has ended and is only not yet reaped there is no command line.)
        grep -q . "/proc/$((16#$pid))/cmdline" 2>/dev/null || ip netns del "$name"
    done
    exit 130
}
trap interrupted INT TERM
run() { "$cargo" test --locked -p loam-tests "$@" -- --test-threads=4; }

"$cargo" test --locked -p loam-tests --no-run || exit
failed=""
# beside N NAME...: N of these at a time; the logs in the order of the names.
beside() {
    local at_once=$1 name
    shift
    for name in "$@"; do
        while [ "$(jobs -rp | wc -l)" -ge "$at_once" ]; do wait -n; done
        set -m
        { run --test "$name" >"$logs/$name" 2>&1 </dev/null || touch "$logs/$name.failed"; } &
        set +m
    done
    wait
    for name in "$@"; do
        cat "$logs/$name"
        [ ! -e "$logs/$name.failed" ] || failed+=" $name"
    done
    [ -z "$failed" ] || { echo "tests/e2e.sh: failed:$failed" >&2; exit 1; }
}
beside 5 "${waiting[@]}"
beside 2 "${halves[@]}"

others=()
for file in tests/tests/*.rs; do
    name=$(basename "$file" .rs)
    [[ " ${waiting[*]} ${halves[*]} " == *" $name "* ]] || others+=(--test "$name")
done
run --lib "${others[@]}"
