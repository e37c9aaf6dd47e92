#!/bin/sh
# Installation: what `meson install` leaves is enough to build and run a program against either library.
. "$(dirname "$0")/lane.sh"
build_with gcc || exit 1
run_tap tests/source/install.sh "$root/build/gcc"
