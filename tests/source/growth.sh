#!/bin/sh
# growth.sh ROOT CC: structs that begin with their size grow by the rules of docs/releasing.md. Compares tests/data/abi.h with
# tests/data/abi_released.h, the interface of the last release with the same SONAME, if there is one. Changes that are made on purpose show
# that the mistakes are found.
set -u
cd "$1" || exit 1
cc=$2
. tests/source/tap.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Writes the places of all fields in FILE.h to FILE.layout.
layout() { # FILE
    awk -f tests/source/layout.awk "$1.h" >"$1.c" && $cc -std=c11 -I. "$1.c" -o "$1.program" && "$1.program" >"$1.layout" &&
        [ "$(grep -c ' sizeof ' "$1.layout")" -gt 40 ]
}
grows() { # OLD NEW
    awk -f tests/source/growth.awk "$1.layout" "$2.layout" >"$folder/found"
    ! grep . "$folder/found"
}
change() { # SED_SCRIPT
    sed "$1" "$today.h" >"$folder/changed.h" && ! cmp -s "$today.h" "$folder/changed.h" && layout "$folder/changed"
}
may() { # SED_SCRIPT
    change "$1" && grows "$today" "$folder/changed"
}
finds() { # SED_SCRIPT MESSAGE
    change "$1" || return 1
    grows "$today" "$folder/changed" && return 1
    grep -q -x "$2" "$folder/found"
}

today=$folder/today
cp tests/data/abi.h "$today.h"
point "fields have places" layout "$today"
point "equal interfaces" grows "$today" "$today"
if [ -e tests/data/abi_released.h ]; then
    cp tests/data/abi_released.h "$folder/released.h"
    point "the released interface" layout "$folder/released"
    point "structs have grown by the rules" grows "$folder/released" "$today"
fi
# tsr_checkpoint_params ends with flags and padding, and tsr_checkpoint_slice without padding.
point "a field at the old size is correct" may 's/^} tsr_checkpoint_params;/uint64_t newer;\n&/'
point "a small field with its neighbour is correct" may 's/^} tsr_checkpoint_slice;/uint32_t newer, reserved;\n&/'
point "a small field behind the filled padding is correct" may 's/^} tsr_checkpoint_params;/uint8_t reserved[7]; bool newer[8];\n&/'
point "a field in the padding is found" finds 's/^} tsr_checkpoint_params;/bool newer;\n&/' \
    'tsr_checkpoint_params.newer: lies in the padding at the end of the released struct of [0-9]* bytes'
point "padding behind a new field is found" finds 's/^} tsr_checkpoint_slice;/uint32_t newer;\n&/' \
    'tsr_checkpoint_slice: 4 bytes of padding follow the last new field; .*'
point "padding between new fields is found" finds 's/^} tsr_checkpoint_slice;/uint32_t newer; uint64_t second;\n&/' \
    'tsr_checkpoint_slice.second: 4 bytes of padding come before this field; .*'
point "a field of another type is found" finds '/^typedef struct tsr_checkpoint_slice/,/^}/s/int part;/int64_t part;/' \
    'tsr_checkpoint_slice.part: was at 8 with 4 bytes and is at 8 with 8 bytes'
point "a removed field is found" finds '/^typedef struct tsr_checkpoint_slice/,/^}/s/int part;//' 'tsr_checkpoint_slice.part: is gone'
plan
