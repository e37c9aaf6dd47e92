#!/bin/sh
# abi.sh ROOT CC: functions, types and layouts of the public headers are those in tests/data/abi.h, as abidiff compares them. symbols.sh
# compares the headers with the library.
# abi.sh ROOT CC write: writes tests/data/abi.h and the list of symbols for the Debian package. docs/releasing.md says when to do this.
set -u
cd "$1" || exit 1
cc=$2
kept=tests/data/abi.h

# Prints what the public headers declare, without macros and system headers.
declarations() {
    echo '#include <tessera/tessera.h>' | $cc -std=c11 -E -Iinclude -x c - | awk '
        /^# [0-9]+ "/ { inside = $3 ~ /^"include\/tessera\//; next }
        inside && NF {
            gsub(/__attribute__\(\(visibility\("default"\)\)\)/, "TSR_API")
            gsub(/ __attribute__\(\(warn_unused_result\)\)/, "")
            print
        }'
}
functions() { # FILE: prints their names
    tr '\n' ' ' <"$1" | grep -o 'TSR_API[^;(]*(' | sed 's/($//; s/.*[ *]//' | sort
}
version=$(sed -n "s/^ *version: '\(.*\)',/\1/p" meson.build)
soversion=$(sed -n "s/^ *soversion: '\(.*\)',.*/\1/p" src/meson.build)
symbols=debian/libtessera$soversion.symbols

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
declarations >"$folder/now.h"

if [ "${3-}" = write ]; then
    cp "$folder/now.h" "$kept"
    {
        echo "libtessera.so.$soversion libtessera$soversion #MINVER#"
        for function in $(functions "$kept"); do
            grep "^ $function@Base " "$symbols" 2>/dev/null || echo " $function@Base $version"
        done
    } >"$folder/symbols"
    cp "$folder/symbols" "$symbols"
    exit
fi
. tests/source/tap.sh

# Makes FILE.so from FILE.h: a variable for each function, whose type describes the function with all types that it uses.
describe() { # FILE
    {
        printf '#include <%s>\n' stdbool.h stddef.h stdint.h
        cat "$1.h"
        functions "$1.h" | sed 's/.*/__typeof__(\&&) of_& = \&&;/'
    } >"$1.c"
    $cc -std=gnu11 -g -fPIC -shared -nostdlib -DTSR_API= -Wl,--unresolved-symbols=ignore-all "$1.c" -o "$1.so"
}
difference() { # OPTION…
    abidiff --leaf-changes-only --no-show-locs "$@" "$folder/kept.so" "$folder/now.so" && return
    echo "If this is wanted: sh tests/source/abi.sh . cc write, and see docs/releasing.md for what it means for users"
    return 1
}
both_compile() {
    cp "$kept" "$folder/kept.h" && describe "$folder/kept" && describe "$folder/now" &&
        [ "$(functions "$folder/now.h" | wc -l)" -gt 5 ]
}
same_symbols() {
    functions "$kept" >"$folder/functions"
    sed -n 's/^ \(.*\)@Base .*/\1/p' "$symbols" | diff "$folder/functions" -
}

if command -v abidiff >/dev/null; then
    point "the headers and the kept interface compile" both_compile
    point "nothing of the interface was removed or changed" difference --no-added-syms
    point "nothing was added to the interface that is not kept" difference
else
    skip "the interface is the kept one" "needs abidiff (abigail-tools)"
fi
point "the Debian package lists the functions of the kept interface" same_symbols
plan
