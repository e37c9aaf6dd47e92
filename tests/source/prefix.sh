# shellcheck shell=sh
# find_libdir PREFIX: makes the pkg-config of the installed copy in PREFIX the only one. Sets $libdir.
find_libdir() {
    prefix=$1
    libdir=$(dirname "$(find "$prefix" -name libtessera.so)")
    # Changes the prefix instead of setting a sysroot, because a sysroot would also apply to libraries outside this folder.
    grep -qx "prefix=$prefix" "$libdir/pkgconfig/tessera.pc" ||
        sed -i "s|^prefix=.*|prefix=$prefix|" "$libdir/pkgconfig/tessera.pc"
    # Hides all other development packages, because programs must not need the packages with which the library was built.
    export PKG_CONFIG_LIBDIR="$libdir/pkgconfig"
    unset PKG_CONFIG_PATH
}
