#!/bin/sh
# Installs the programs that the end-to-end tests run. As root: by apt-get. Else: says what is missing and ends with 1.
set -eu

missing=""
need() { # program, package
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
need cc gcc
need gcc gcc
need python3 python3
need sqlite3 sqlite3
need redis-server redis-server
need javac default-jdk-headless
need java default-jre-headless
need node nodejs
need xz xz-utils
need setpriv util-linux
need ip iproute2
need etcd etcd-server
need valgrind valgrind
need fio fio
# A static program needs the C library's archive.
[ -n "$(cc -print-file-name=libc.a 2>/dev/null | grep / || true)" ] || missing="$missing libc6-dev"

[ -n "$missing" ] || { echo "tests/setup.sh: everything is there"; exit 0; }
if [ "$(id -u)" -ne 0 ]; then
    echo "tests/setup.sh: missing:$missing: run this script as root, or install them" >&2
    exit 1
fi
command -v apt-get >/dev/null 2>&1 || {
    echo "tests/setup.sh: missing:$missing: there is no apt-get here, install them by hand" >&2
    exit 1
}
# Packages only: no service of theirs is to be started for a test.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
# shellcheck disable=SC2086 # several words on purpose
apt-get install -q -y --no-install-recommends $missing
