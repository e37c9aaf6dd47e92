#!/bin/sh
# Rules about the sources: headers compile alone, modules depend downwards, the library exports what the headers declare.
. "$(dirname "$0")/lane.sh"
CC=gcc configure build/gcc --werror && build build/gcc || exit 1
run_suites build/gcc source
