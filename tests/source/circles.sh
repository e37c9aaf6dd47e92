#!/bin/sh
# circles.sh ROOT BUILD: the object files of the library, the tool and its benchmarks depend on each other without circles.
#
# One source depends on another when its object file uses a symbol that only the other defines. A circle is a set of sources that all
# reach each other. Sources of different folders may not form one; inside a folder a circle of up to 3 sources is tolerated, and
# at most 6 circles in all. Each failure prints one way around the circle, with a symbol for each step.
set -u
cd "$1" || exit 1
build=$2
. tests/source/tap.sh

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Meson names the object of src/gpu/ops/copy/fill.c, listed in src/gpu/meson.build, src/gpu/LIBRARY.p/ops_copy_fill.c.o, and that of
# bench/list.c, listed in src/cli/meson.build, src/cli/tessera.p/.._.._bench_list.c.o.
find src bench -name '*.c' | sort >"$folder/sources"
find "$build/src" -name '*.c.o' \( -path '*.a.p/*' -o -path '*/cli/tessera.p/*' \) | sort >"$folder/objects"
xargs nm -A -g <"$folder/objects" | sed "s|^$build/||" >"$folder/symbols"

awk -v symbols="$folder/symbols" -f tests/source/circles.awk "$folder/sources" "$folder/symbols" >"$folder/circles"

enough_files() {
    grep ' files$' "$folder/circles"
    [ "$(awk '/ files$/ { print $1 }' "$folder/circles")" -ge 150 ]
}
tool_read() {
    [ "$(grep -cE '/cli/(tessera|libtool-units.a).p/' "$folder/objects")" -ge 30 ]
}
none_across() {
    ! grep ' across ' "$folder/circles"
}
none_large() {
    ! awk '/ (across|inside) / && $1 > 3' "$folder/circles" | grep .
}
few() {
    grep -E ' (across|inside) ' "$folder/circles"
    [ "$(grep -cE ' (across|inside) ' "$folder/circles")" -le 6 ]
}

# Without this check, the rules would hold if no sources were found.
point "object files were read" enough_files
[ ! -d "$build/src/cli/tessera.p" ] || point "those of the tool, too" tool_read
point "no circle crosses folders" none_across
point "no circle has more than 3 sources" none_large
point "at most 6 circles in all" few
plan
