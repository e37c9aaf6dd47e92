#!/bin/sh
# options.sh ROOT: any of the parts can be left out, without or with others.
set -u
cd "$1" || exit 1
. tests/source/tap.sh

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
configures() { # OPTION…
    meson setup "$folder/$points" . "$@"
}

for part in ucx pmix shaderc tools bench tests; do
    point "without $part" configures "-D$part=disabled"
done
point "without the tool and UCX" configures -Dtools=disabled -Ducx=disabled
point "without the tool and Vulkan" configures -Dtools=disabled -Dvulkan=disabled -Dshaderc=disabled
plan
