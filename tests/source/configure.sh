#!/bin/sh
# configure.sh ROOT: the build can be configured without tests, with only the static library, and as a part of another project. The lane
# `options` builds with other values of the options.
set -u
cd "$1" || exit 1
. tests/source/tap.sh

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
configures() { # OPTION…
    meson setup "$folder/$points" . "$@"
}

point "without tests" configures -Dtests=disabled
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
