#!/bin/sh
# headers.sh ROOT LIBRARY CC CXX: every public header compiles alone, as C11, without a warning. All headers together compile by the oldest
# and the newest standard, from C11 and C++11 on, with these compilers and with gcc and clang if they are installed, and a program in C++
# that fills params and calls functions runs with the library.
set -u
library=$(realpath "$2")
cd "$1" || exit 1
cc=$3
cxx=$4
. tests/source/tap.sh

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

warnings='-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror'
# All of clang's warnings, except about padding, which structs may have, and about what old standards lack.
everything='-Weverything -Wno-padded -Wno-unknown-warning-option -Wno-declaration-after-statement -Wno-pre-c11-compat -Wno-c++98-compat
    -Wno-c++98-compat-pedantic -Wno-unsafe-buffer-usage -Werror'
is_clang() { # COMPILER
    "$1" --version 2>/dev/null | grep -q clang
}
same_compiler() { # COMPILER COMPILER
    [ "$("$1" --version 2>/dev/null | sed '1s/^[^ ]* //')" = "$("$2" --version 2>/dev/null | sed '1s/^[^ ]* //')" ]
}
# Prints the compilers to use: FIRST, and those of the others that are installed and differ from it.
compilers() { # FIRST OTHER…
    first=$1
    echo "$first"
    shift
    for other in "$@"; do
        command -v "$other" >/dev/null && ! same_compiler "$first" "$other" && echo "$other"
    done
}
options() { # COMPILER
    if is_clang "$1"; then
        echo "$everything"
    else
        echo "$warnings"
    fi
}
knows() { # COMPILER LANGUAGE STANDARD
    echo | "$1" -x "$2" "-std=$3" -fsyntax-only - 2>/dev/null
}
compile() { # LANGUAGE STANDARD COMPILER HEADER
    # shellcheck disable=SC2046 # several options
    printf '#include "%s"\n' "$4" >"$folder/one" && "$3" -x "$1" "-std=$2" $(options "$3") -fsyntax-only -Iinclude "$folder/one"
}
runs() { # STANDARD COMPILER
    # shellcheck disable=SC2086 # several options
    "$2" "-std=$1" $warnings -Iinclude tests/abi/program.cpp "$library" -Wl,-rpath,"${library%/*}" -o "$folder/program" && "$folder/program"
}

c_compilers=$(compilers "$cc" gcc clang)
cxx_compilers=$(compilers "$cxx" g++ clang++)
for path in include/tessera/*.h; do
    header=${path#include/}
    point "$header alone as C11" compile c c11 "$cc" "$header"
done
for compiler in $c_compilers; do
    for standard in c11 c2x; do
        knows "$compiler" c "$standard" || continue
        point "all headers as $standard by ${compiler##*/}" compile c "$standard" "$compiler" tessera/tessera.h
    done
done
for compiler in $cxx_compilers; do
    for standard in c++11 c++2b; do
        knows "$compiler" c++ "$standard" || continue
        point "all headers as $standard by ${compiler##*/}" compile c++ "$standard" "$compiler" tessera/tessera.h
    done
    for standard in c++11 c++20; do
        knows "$compiler" c++ "$standard" || continue
        point "a program in $standard by ${compiler##*/} fills params and calls functions" runs "$standard" "$compiler"
    done
done
# The README's program must also be valid C++.
point "hello_matmul.c as C++17" "$cxx" -x c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -Iinclude examples/hello_matmul.c
plan
