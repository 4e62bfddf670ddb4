#!/bin/sh
# Records the traces that the simulator's experiments replay: programs of the kinds that subpages-1996 used.
#
#   bench/traces/record.sh small DIR [PROGRAM...]   what is committed in traces/: 8 to 30 million references each
#   bench/traces/record.sh full DIR [PROGRAM...]    88 to 145 million references each; an hour
#
# PROGRAM is one of cc1 ld gdb povray objdump objcopy; all of them unless given. $LOAM is the loam command.
# As root, what is missing is installed by apt-get; else it is said.
set -eu

usage() {
    echo "usage: bench/traces/record.sh small|full DIR [cc1] [ld] [gdb] [povray] [objdump] [objcopy]" >&2
    exit 2
}
[ $# -ge 2 ] || usage
size=$1
case $size in small | full) ;; *) usage ;; esac
mkdir -p "$2"
out=$(cd "$2" && pwd)
shift 2
[ $# -gt 0 ] || set -- cc1 ld gdb povray objdump objcopy

here=$(cd "$(dirname "$0")" && pwd)
loam=${LOAM:-$here/../../target/release/loam}
[ -x "$loam" ] || { echo "record.sh: $loam is missing: make build, or set LOAM" >&2; exit 1; }
loam=$(realpath "$loam")

missing=""
for need in valgrind:valgrind gcc:gcc gdb:gdb povray:povray objdump:binutils; do
    command -v "${need%:*}" >/dev/null 2>&1 || missing="$missing ${need#*:}"
done
if [ -n "$missing" ]; then
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
        echo "record.sh: missing:$missing: install them, or run this script as root" >&2
        exit 1
    fi
    apt-get update -q && DEBIAN_FRONTEND=noninteractive \
        sh -c "apt-get install -q -y --no-install-recommends $missing"
fi

# The programs run in a folder of the same name each time: names and environment lie on their stacks.
work=/tmp/loam-record
mkdir -p "$work"
cp "$here"/small.c "$here"/scene.pov "$here"/../walk.c "$work"
cd "$work"
record() { # name, program, arguments
    name=$1
    shift
    echo "== $name: $*" >&2
    env -i PATH="$PATH" HOME="$work" LC_ALL=C "$loam" trace record -o "$out/$name.trace" -- "$@" >/dev/null
}
lib=$(dirname "$(gcc -print-file-name=crt1.o)")
gcclib=$(dirname "$(gcc -print-libgcc-file-name)")

for program; do
    case $program-$size in
    cc1-small)
        record cc1 "$(gcc -print-prog-name=cc1)" -quiet -O1 small.c -o small.s
        ;;
    cc1-full)
        gcc -E walk.c -o walk.i
        record cc1 "$(gcc -print-prog-name=cc1)" -quiet -fpreprocessed -O2 walk.i -o walk.s
        ;;
    ld-small) # a small program with the C and mathematical libraries, statically
        printf "int main(void) { return 0; }\n" >main.c && gcc -c main.c && gcc -O1 -c small.c -o part.o
        record ld "$(gcc -print-prog-name=ld)" -static -o main "$lib/crt1.o" "$lib/crti.o" "$gcclib/crtbeginT.o" \
            main.o part.o --start-group "$gcclib/libgcc.a" "$gcclib/libgcc_eh.a" "$lib/libc.a" "$lib"/libm-*.a --end-group \
            "$gcclib/crtend.o" "$lib/crtn.o"
        ;;
    ld-full) # statically, with all of the mathematical library
        printf 'int main(void) { return 0; }\n' >main.c && gcc -c main.c
        record ld "$(gcc -print-prog-name=ld)" -static -o main "$lib/crt1.o" "$lib/crti.o" "$gcclib/crtbeginT.o" \
            main.o --whole-archive "$lib"/libm-*.a --no-whole-archive --start-group "$gcclib/libgcc.a" \
            "$gcclib/libgcc_eh.a" "$lib/libc.a" --end-group "$gcclib/crtend.o" "$lib/crtn.o"
        ;;
    gdb-small) # Debian's gdb without Python, which has a start of its own
        [ -x gdb-minimal/usr/bin/gdb ] || {
            apt-get download -q gdb-minimal >&2
            dpkg -x gdb-minimal_*.deb gdb-minimal
        }
        record gdb gdb-minimal/usr/bin/gdb -nx -batch -ex quit
        ;;
    gdb-full)
        record gdb gdb -nx -batch -ex quit
        ;;
    povray-small)
        sed 's/1, 4000/1, 200/' scene.pov >small.pov
        record povray povray +Ismall.pov +O/dev/null +FN +W12 +H9 -D +WT1 -GA
        ;;
    povray-full)
        record povray povray +Iscene.pov +O/dev/null +FN +W24 +H18 -D +WT1 -GA
        ;;
    objdump-small) # the paper had Atom work on gzip
        record objdump objdump -d -r -t -C /usr/bin/gzip
        ;;
    objdump-full)
        record objdump objdump -d -r -t -C "$(command -v objdump)"
        ;;
    objcopy-small) # all of the mathematical library as one object file, its debug sections taken out
        ld -r --whole-archive "$lib"/libm-*.a -o library.o
        record objcopy objcopy --strip-debug library.o stripped.o
        ;;
    objcopy-full) # all members of the C++ library
        record objcopy objcopy --strip-debug "$(gcc -print-file-name=libstdc++.a)" stripped.a
        ;;
    *) usage ;;
    esac
done
for program; do
    "$loam" trace info "$out/$program.trace"
    echo
done
