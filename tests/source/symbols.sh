#!/bin/sh
# symbols.sh ROOT SHARED STATIC: the shared library exports exactly the functions that the headers declare with TSR_API, and all global
# names of the static library have the prefix tsr_.
set -u
shared=$(realpath "$2")
static=$(realpath "$3")
cd "$1" || exit 1
. tests/source/tap.sh

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# A declaration may have several lines; the name is before the first parenthesis after TSR_API.
cat include/tessera/*.h | grep -v '^ *#' | tr '\n' ' ' | grep -o 'TSR_API[^;(]*(' |
    sed 's/($//; s/.*[ *]//' | sort >"$folder/declared"
nm -D --defined-only "$shared" | awk '{ print $3 }' | sort >"$folder/exported"
nm -g --defined-only "$static" | awk 'NF == 3 { print $3 }' | sort -u >"$folder/global"

some_declared() {
    [ "$(wc -l <"$folder/declared")" -gt 5 ] && [ "$(sort -u "$folder/declared" | wc -l)" = "$(wc -l <"$folder/declared")" ]
}
prefixed() {
    ! grep -v '^tsr_' "$folder/global"
}
has_soname() {
    objdump -p "$shared" | grep 'SONAME *libtessera\.so\.[0-9]'
}
no_vulkan() {
    ! objdump -p "$shared" | grep 'NEEDED.*vulkan'
}

point "headers declare each function once" some_declared
point "the exported functions are the declared ones" diff "$folder/declared" "$folder/exported"
point "global names start with tsr_" prefixed
point "the library has a SONAME" has_soname
point "libvulkan is not linked" no_vulkan
plan
