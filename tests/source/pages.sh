#!/bin/sh
# pages.sh ROOT: docs/threads.md and docs/lifetimes.md name every public function that creates or opens an object, and name no type or
# function that the headers do not have. docs/tensors.md names every function on one device.
set -u
cd "$1" || exit 1
. tests/source/tap.sh

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Names with a parenthesis behind them are functions and function-like macros.
grep -ohE 'tsr_[a-z0-9_]+' include/tessera/*.h | sort -u >"$folder/known"
grep -ohE 'tsr_[a-z0-9_]+\(' include/tessera/*.h | tr -d '(' | grep -E '_(create|open)(_|$)' | grep -v '_params$' | sort -u >"$folder/makers"

makers_found() {
    [ "$(wc -l <"$folder/makers")" -gt 20 ]
}
names_of() { # PAGE
    grep -oE 'tsr_[a-z0-9_]+' "docs/$1.md" | sort -u
}
all_makers() { # PAGE
    names_of "$1" >"$folder/named"
    ! comm -23 "$folder/makers" "$folder/named" | grep .
}
no_other_names() { # PAGE
    names_of "$1" >"$folder/named"
    ! comm -13 "$folder/known" "$folder/named" | grep .
}

point "functions that create and open were found" makers_found
for page in threads lifetimes; do
    point "docs/$page.md names every function that creates or opens" all_makers "$page"
    point "the headers have all names of docs/$page.md" no_other_names "$page"
done
functions_on_one_device() {
    for header in device stream kernel tensor layout ops matmul quant attention rope kv_cache; do
        grep -ohE 'tsr_[a-z0-9_]+\(' "include/tessera/$header.h" | tr -d '('
    done | grep -vE '_params$|^tsr_(kernel_argument|layer_forward_cached)$' | sort -u >"$folder/functions"
    names_of tensors >"$folder/named"
    [ "$(wc -l <"$folder/functions")" -gt 80 ] && ! comm -23 "$folder/functions" "$folder/named" | grep .
}
point "docs/tensors.md names every function on one device" functions_on_one_device
point "the headers have all names of docs/tensors.md" no_other_names tensors
plan
