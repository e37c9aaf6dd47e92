#!/bin/sh
# vk_calls.sh ROOT CC…: Vulkan functions that can fail are called only through TSR__VK or TSR__DEVICE_TRY, so that tests can make them fail.
set -u
root=$1
shift
cd "$root" || exit 1
. tests/source/tap.sh

names=$(sh tests/source/vk_results.sh "$root" "$@" | sed 's/X(\(.*\))/\1/')

some_names() {
    [ "$(echo "$names" | wc -l)" -gt 15 ]
}

# Finds calls by pointer, such as vk->CreateBuffer(…) or device->vk.CreateBuffer(…).
no_direct_calls() {
    pattern=$(echo "$names" | tr '\n' '|')
    ! find src/gpu -name '*.[ch]' -exec grep -nE "(->|\.)(${pattern%|})[ )]*\(" {} +
}

# Finds calls by the Vulkan loader's names; the library does not link the loader.
no_global_names() {
    ! find src/gpu -name '*.[ch]' -exec grep -nE '(^|[^A-Za-z0-9_"])vk[A-Z][A-Za-z0-9]*\(' {} +
}

# Finds functions in the table that nothing calls; they should be removed.
all_used() {
    unused=
    for name in $names; do
        tr '\n' ' ' <"$all" | grep -qE "TSR__(VK|DEVICE_TRY)\([^,]*, *$name\b" || unused="$unused $name"
    done
    [ -z "$unused" ] || { echo "never called:$unused"; false; }
}

all=$(mktemp)
trap 'rm -f "$all"' EXIT
find src/gpu -name "*.c" -exec cat {} + >"$all"

point "vk.h lists functions that return VkResult" some_names
point "they are not called directly" no_direct_calls
point "no Vulkan function is called by its global name" no_global_names
point "each is called through TSR__VK or TSR__DEVICE_TRY" all_used
plan
