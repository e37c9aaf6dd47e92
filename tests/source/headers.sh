#!/bin/sh
# headers.sh ROOT CC CXX: every public header compiles alone, as C11 and as C++17, without a warning.
set -u
cd "$1" || exit 1
cc=$2
cxx=$3
. tests/source/tap.sh

compile() { # LANGUAGE STANDARD COMPILER HEADER
    printf '#include "%s"\n' "$4" |
        "$3" -x "$1" "-std=$2" -Wall -Wextra -Wpedantic -Werror -fsyntax-only -Iinclude -
}

for path in include/tessera/*.h; do
    header=${path#include/}
    point "$header as C11" compile c c11 "$cc" "$header"
    point "$header as C++17" compile c++ c++17 "$cxx" "$header"
done
# The README's program must also be valid C++.
point "hello_matmul.c as C++17" "$cxx" -x c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -Iinclude examples/hello_matmul.c
plan
