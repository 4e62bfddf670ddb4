#!/bin/sh
# The demonstration: count every word of this machine's own text files, once as always, once with a quarter of the
# memory here and the rest borrowed. Needs: a shell, cc, and the usual tools (find, grep, tr, sort, uniq, cmp).
#
#     demo/run.sh LOAM [MB-OF-WORDS]
#
# LOAM is the built executable, its shim beside it. Files go to a folder of their own under $TMPDIR (default /var/tmp) and are
# removed at the end. Ends with 0 if both outputs are the same, byte for byte.
set -eu
export LC_ALL=C

say() { printf '%s\n' "$*"; }
stop() {
    printf 'demo: %s\n' "$*" >&2
    exit 1
}

[ $# -ge 1 ] && [ $# -le 2 ] || stop "usage: demo/run.sh LOAM [MB-OF-WORDS]"
[ -x "$1" ] || stop "$1 is not there: build it with 'make build'"
loam=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
megabytes=${2:-48}
case $megabytes in
'' | *[!0-9]* | 0) stop "'$megabytes' is not a number of megabytes" ;;
esac
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d "${TMPDIR:-/var/tmp}/loam-demo.XXXXXX") || stop "cannot make a folder: set TMPDIR"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
cd "$work"

cc -O2 -o peak "$here/../tests/programs/peak.c" || stop "cc is needed for the helper that measures memory"

say "1. Input: every word of the text files under /usr, up to $megabytes MB"
# grep -I leaves out what is not text; -m1 makes it look at the front of each file only. What cannot be read is left out.
find /usr/share /usr/include /usr/lib -type f -size -2048k -print0 2>/dev/null |
    xargs -0 grep -IlZ -m1 '' 2>/dev/null |
    xargs -0 cat 2>/dev/null |
    tr -cs 'A-Za-z' '\n' 2>/dev/null |
    head -c "${megabytes}000000" >words || true
# The last word may have been cut in two.
printf '\n' >>words
words=$(wc -l <words)
[ "$words" -gt 100000 ] || stop "only $words words were found under /usr: too few to show anything"
say "   $words words"

# One program of several processes, unchanged in both runs: sort all words in memory, count, order by count.
cat >count.sh <<'SCRIPT'
sort --parallel=2 -S 2G -T . words | uniq -c | sort -k1,1nr -k2 >"$1"
SCRIPT

say
say "2. As always: sort | uniq -c | sort, with all the memory it wants"
./peak plain.peak sh count.sh plain.out || stop "the plain run failed"
read -r peak_kib plain_ms <plain.peak
local_mib=$((peak_kib / 1024 / 4))
[ "$local_mib" -ge 32 ] || local_mib=32
say "   it took $plain_ms ms and $((peak_kib / 1024)) MiB of memory"

say
say "3. The same on $local_mib MiB here, the rest borrowed from three lenders of 1 GiB (on this machine, by loopback)"
say "   loam run --local ${local_mib}M --embedded 3x1G -- sh count.sh loam.out"
start=$(date +%s%N)
"$loam" run --local "${local_mib}M" --embedded 3x1G --disk "$work/slots" --summary "$work/summary.json" -- \
    sh count.sh loam.out || stop "the run under Loam failed (its own lines are above)"
loam_ms=$((($(date +%s%N) - start) / 1000000))

say
say "4. Are the two outputs the same?"
cmp plain.out loam.out || stop "they differ: this is a fault of Loam, please report it"
say "   Yes, byte for byte: $(wc -l <loam.out) different words. The most frequent:"
head -n 5 loam.out | sed 's/^ */      /'

# A number of the summary, which has one key a line; keys of inner objects may repeat, so by their object.
figure() { # object, key
    sed -n "/\"$1\": *{/,/}/s/.*\"$2\": *\([0-9][0-9]*\).*/\1/p" summary.json | head -n 1
}
top() { # key
    sed -n "s/^ *\"$1\": *\([0-9][0-9]*\).*/\1/p" summary.json | head -n 1
}
mib() { say "$((${1:-0} / 1048576)) MiB"; }
say
say "What happened, in short"
say "   The program wanted $((peak_kib / 1024)) MiB. It got $local_mib MiB here; its largest size was $(mib "$(top local_peak_bytes)")."
say "   $(mib "$(figure bytes out)") went to the lenders and $(mib "$(figure bytes in)") came back, while the program noticed nothing."
say "   Every page went to two lenders, so any of them may die; it was safe there after $(figure swap_out_us p50) millionths of a second (half of them)."
say "   It waited for a page $(figure faults total) times; half of the waits were below $(figure fault_latency_us p50) millionths of a second."
say "   Time: $plain_ms ms as always, $loam_ms ms on a quarter of the memory."
