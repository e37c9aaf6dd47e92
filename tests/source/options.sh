#!/bin/sh
# options.sh ROOT: each optional part can be disabled, alone or with others.
set -u
cd "$1" || exit 1
. tests/source/tap.sh

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
configures() { # OPTION…
    meson setup "$folder/$points" . "$@"
}

for part in ucx pmix shaderc cpu_kernels tools bench tests; do
    point "without $part" configures "-D$part=disabled"
done
point "without the tool and UCX" configures -Dtools=disabled -Ducx=disabled
point "without the tool and Vulkan" configures -Dtools=disabled -Dvulkan=disabled -Dshaderc=disabled
static_alone() {
    meson setup "$folder/static" . -Ddefault_library=static &&
        meson introspect --installed "$folder/static" >"$folder/installed" && grep 'libtessera\.a' "$folder/installed" &&
        ! grep 'libtessera\.so' "$folder/installed"
}
point "the static library alone" static_alone
subproject() {
    mkdir -p "$folder/super/subprojects" && ln -s "$PWD" "$folder/super/subprojects/tessera" &&
        printf '%s\n' "project('super', 'c')" "executable('hello', 'hello.c', dependencies: dependency('tessera', fallback: 'tessera'))" \
            >"$folder/super/meson.build" && cp examples/hello_matmul.c "$folder/super/hello.c" &&
        meson setup --wrap-mode=forcefallback "$folder/super/b" "$folder/super"
}
point "as the subproject of another" subproject
plan
