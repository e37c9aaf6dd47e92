#!/bin/sh
# install.sh BUILD: installs into a temporary folder, and builds and runs programs that use only this folder.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$1
. tests/source/tap.sh
. tests/source/prefix.sh

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
prefix=$folder/usr/local
cat >"$folder/hello.c" <<'END'
#include <stdio.h>
#include <tessera/tessera.h>
int main(void)
{
    tsr_layout layout;
    int64_t shape[] = {2, 3};
    if (tsr_layout_init(TSR_F32, 2, shape, &layout) != TSR_OK)
        return 1;
    printf("%s\n", tsr_version());
    return tsr_layout_count(&layout) == 6 ? 0 : 1;
}
END

install_all() {
    meson install -C "$build" --no-rebuild --destdir "$folder" --quiet
}
compile_shared() {
    # shellcheck disable=SC2046 # options
    gcc -std=c11 -Wall -Werror "$folder/hello.c" -o "$folder/shared" $(pkg-config --cflags --libs tessera) &&
        [ "$(LD_LIBRARY_PATH=$libdir "$folder/shared")" = "$version" ]
}
asks_for_nothing_else() {
    words=$(pkg-config --cflags --libs tessera | tr ' ' '\n' | sed '/^$/d' | sort)
    printf '%s\n' "$words"
    [ "$words" = "$(printf '%s\n' "-I$prefix/include" "-L$libdir" -ltessera | sort)" ]
}
# Programs must not need jansson: only the tool and the tests use it; the library has its own JSON reader.
static_needs_no_jansson() {
    ! pkg-config --libs --static tessera | grep jansson
}
# The line of the examples' README compiles each of the small programs, from its own folder.
compile_examples() {
    # shellcheck disable=SC2016 # the line is evaluated below
    line=$(sed -n 's/^    \(cc .*\)hello_train\.c \(.*pkg-config.*\)$/\1"$source" -o "$folder\/example" \2/p' examples/README.md)
    [ -n "$line" ] || return 1
    # shellcheck disable=SC2034 # the line uses it
    for source in examples/hello_*.c; do
        eval "$line" || return 1
    done
}
compile_uninstalled() {
    # shellcheck disable=SC2046 # options
    gcc -std=c11 -Wall -Werror "$folder/hello.c" -o "$folder/uninstalled" \
        $(PKG_CONFIG_LIBDIR=$build/meson-uninstalled pkg-config --cflags --libs tessera) &&
        [ "$(LD_LIBRARY_PATH=$build/src "$folder/uninstalled")" = "$version" ]
}
compile_static() {
    # shellcheck disable=SC2046 # options
    gcc -std=c11 -Wall -Werror "$folder/hello.c" -o "$folder/static" $(pkg-config --cflags tessera) \
        "$libdir/libtessera.a" $(pkg-config --libs --static tessera | sed 's/-ltessera\b//') &&
        ! ldd "$folder/static" | grep tessera && [ "$("$folder/static")" = "$version" ]
}
# A program that opens a device also links the GLSL compiler from the archive. With --as-needed, Ubuntu's default, the linker drops a
# library that nothing before it on the command line needs.
link_static_gpu() {
    # shellcheck disable=SC2046 # options
    gcc -std=c11 -Wl,--as-needed examples/hello_matmul.c -o "$folder/static-gpu" $(pkg-config --cflags tessera) \
        "$libdir/libtessera.a" $(pkg-config --libs --static tessera | sed 's/-ltessera\b//')
}
tool_runs() {
    [ "$(LD_LIBRARY_PATH=$libdir "$prefix/bin/tessera" --version)" = "tessera $version" ]
}
man_page_is_clean() {
    page=$prefix/share/man/man1/tessera.1
    warnings=$(man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 >/dev/null) || return 1
    printf '%s' "$warnings"
    [ -z "$warnings" ]
}
man_page_has_version() {
    grep "^\.TH TESSERA 1 .*tessera $version" "$prefix/share/man/man1/tessera.1"
}

point "installs" install_all
find_libdir "$prefix"
version=$(pkg-config --modversion tessera)
point "a program builds and runs with the shared library" compile_shared
point "the documented line compiles the examples" compile_examples
point "the shared library asks for no other package or flag" asks_for_nothing_else
point "the static library asks for no jansson" static_needs_no_jansson
point "a program builds and runs with the static library" compile_static
point "a program that opens a device links with the static library" link_static_gpu
point "a program builds and runs against the build folder" compile_uninstalled
point "the installed tool runs" tool_runs
point "the man page is installed and clean" man_page_is_clean
point "the man page carries the version" man_page_has_version
plan
