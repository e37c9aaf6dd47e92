#!/bin/sh
# Installation: the files that `meson install` installs are enough to build and run a program with either library.
. "$(dirname "$0")/lane.sh"
build_with gcc || exit 1
run_tap tests/source/install.sh "$root/build/gcc"
