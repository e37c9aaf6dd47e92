#!/bin/sh
# options.sh ROOT: any of the parts can be left out, without or with others.
set -u
cd "$1" || exit 1
. tests/source/tap.sh

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
configures() { # PART…: none of them is built
    build=$folder/$(printf '%s-' "$@")
    for part in "$@"; do
        shift
        set -- "$@" "-D$part=disabled"
    done
    meson setup "$build" . "$@"
}

for part in ucx pmix shaderc tools bench tests; do
    point "without $part" configures "$part"
done
point "without the tool and UCX" configures tools ucx
point "without the tool and Vulkan" configures tools vulkan shaderc
plan
