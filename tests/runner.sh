#!/bin/sh
# What cargo starts tests with, where some are to run and the others not: runner.sh only|but CRATE,CRATE EXECUTABLE ARGS...
# (Naming packages to cargo in its place changes what is compiled: features are those that the named ones ask for.)
set -eu
which=$1 crates=$2
shift 2
name=$(basename "$1")
case ",$crates," in
*",${name%-*},"*) is=only ;;
*) is=but ;;
esac
[ "$is" = "$which" ] || exit 0
exec "$@"
