#!/bin/sh
# arm64: plain C, cross-built, and its unit tests under qemu's user mode.
# The libraries for arm64 are packages of this Debian or Ubuntu, which are extracted into build/arm64-root.
. "$(dirname "$0")/lane.sh"
arm64=build/arm64-root
scripts/arm64_root.sh "$arm64" || exit 1
configure build/arm64 --cross-file "$arm64/root.ini" --cross-file scripts/arm64.ini --werror -Ddebug=false -Dvulkan=disabled \
    -Dshaderc=disabled -Ducx=disabled -Dpmix=disabled -Dtools=disabled -Dtests=enabled || exit 1
programs=$(meson test -C build/arm64 --no-rebuild --list --suite emulated 2>/dev/null | sed -n 's|^tessera:[^ ]* / |tests/test-|p')
# shellcheck disable=SC2086 # several words
build build/arm64 $programs || exit 1
timeout_multiplier=4
export CK_TIMEOUT_MULTIPLIER=4
run_suites build/arm64 emulated
