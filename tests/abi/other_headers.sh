#!/bin/sh
# other_headers.sh ROOT LIBRARY host|device CC…: programs that were built with older and with newer headers run with this library. Makes
# both sets of headers from the present ones (other_headers.awk), builds the program of this folder with each of the three, and runs it: in
# all cases it must print the same results, and with newer headers each function must refuse a field that the library does not know.
set -u
library=$(realpath "$2")
cd "$1" || exit 1
part=$3
shift 3
. tests/source/tap.sh

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

make_headers() { # SET
    mkdir -p "$folder/$1/tessera"
    for header in include/tessera/*.h; do
        awk -v set="$1" -f tests/abi/other_headers.awk "$header" >"$folder/$1/tessera/${header##*/}" || return 1
    done
}
# Prints the names of the structs that begin with their size.
sized() {
    awk '/^typedef struct tsr_/ { name = $3; getline; if ($0 ~ /^    size_t struct_size;/) print name }' include/tessera/*.h
}
# Prints the sizes of these structs with a set of headers.
sizes() { # INCLUDE COMPILER…
    headers=$1
    shift
    {
        echo '#include <stdio.h>'
        echo '#include <tessera/tessera.h>'
        echo 'int main(void) {'
        sized | sed 's/.*/printf("& %zu\\n", sizeof(&));/'
        echo '}'
    } >"$folder/sizes.c"
    "$@" -std=c11 -I"$headers" "$folder/sizes.c" -o "$folder/sizes" && "$folder/sizes"
}
# A struct whose last field is smaller than its alignment keeps its size: most do not.
sizes_differ() { # COMPILER…
    sizes include "$@" >"$folder/sizes.today" && sizes "$folder/older" "$@" >"$folder/sizes.older" &&
        sizes "$folder/newer" "$@" >"$folder/sizes.newer" || return 1
    count=$(sized | wc -l)
    shorter=$(join "$folder/sizes.today" "$folder/sizes.older" | awk '$3 < $2' | wc -l)
    longer=$(join "$folder/sizes.today" "$folder/sizes.newer" | awk '$3 == $2 + 8' | wc -l)
    echo "$count structs: $shorter are shorter, $longer longer"
    [ "$count" -gt 40 ] && [ "$shorter" -gt $((count / 2)) ] && [ "$longer" = "$count" ]
}
build() { # NAME INCLUDE COMPILER…
    name=$1
    headers=$2
    shift 2
    "$@" -std=c11 -g -Wall -Wextra -Werror -I"$headers" -Itests/abi tests/abi/*.c "$library" -Wl,-rpath,"${library%/*}" -o "$folder/program.$name"
}
prints() { # NAME
    "$folder/program.$1" "$part" tests/data >"$folder/results.$1" && [ "$(wc -l <"$folder/results.$1")" -gt 5 ]
}
as_today() { # NAME
    prints "$1" && diff "$folder/results.today" "$folder/results.$1"
}
all_used() {
    for struct in $(sized); do
        grep -q "[( ]${struct}[,)]" tests/abi/*.c || echo "tests/abi/host.c or device.c must pass $struct to a function that takes or writes it"
    done >"$folder/rest"
    ! grep . "$folder/rest"
}

point "older headers" make_headers older
point "newer headers" make_headers newer
point "their structs have other sizes" sizes_differ "$@"
point "the program uses every struct that has a size" all_used
point "a program with today's headers builds" build today include "$@"
point "… with older headers" build older "$folder/older" "$@"
point "… with newer headers" build newer "$folder/newer" "$@" -DNEWER
point "the program runs with today's headers" prints today
point "… with older headers, with the same results" as_today older
point "… with newer headers, with the same results, and unknown fields are refused" as_today newer
plan
