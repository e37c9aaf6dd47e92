#!/bin/sh
# folders.sh ROOT: CONTRIBUTING.md names every folder of the sources, and no folder that does not exist. Every shader is in the list of
# shaders/meson.build.
set -u
cd "$1" || exit 1
. tests/source/tap.sh

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
find include src bench shaders -type d >"$folder/unsorted"
find tests -maxdepth 1 -type d >>"$folder/unsorted"
echo debian >>"$folder/unsorted"
sort "$folder/unsorted" >"$folder/there"
# Reads the first column of CONTRIBUTING.md's tables, which has one folder, as in | `src/gpu/device/` | …, or several, separated by commas.
grep '^| `[a-z]' CONTRIBUTING.md | cut -d'|' -f2 | tr -d '` ' | tr ',' '\n' | sed -n 's|/$||p' | sort >"$folder/named"

some() {
    [ "$(wc -l <"$folder/there")" -gt 40 ]
}
all_named() {
    ! comm -23 "$folder/there" "$folder/named" | grep .
}
none_gone() {
    ! comm -13 "$folder/there" "$folder/named" | grep .
}

all_compiled() {
    for shader in shaders/gpu/*.comp shaders/cpu_drivers/*.comp; do
        name=${shader#shaders/}
        grep -q "^  \['${name%.comp}', " shaders/meson.build || echo "$shader is not compiled"
    done >"$folder/rest"
    ! grep . "$folder/rest"
}

point "the folders were found" some
point "CONTRIBUTING.md names every folder" all_named
point "every folder that it names exists" none_gone
point "shaders/meson.build compiles every shader" all_compiled
plan
