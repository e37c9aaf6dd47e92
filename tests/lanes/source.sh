#!/bin/sh
# Rules about the sources: headers compile alone, modules depend downwards, the library exports what the headers declare.
. "$(dirname "$0")/lane.sh"
build_with gcc || exit 1
run_suites build/gcc source
