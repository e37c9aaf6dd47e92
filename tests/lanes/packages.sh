#!/bin/sh
# Packages: Debian packages are built, lintian has no complaint, and the tests of debian/tests pass with their contents. The packages are
# extracted, not installed, so that this machine stays as it is. CONTRIBUTING.md says how to install them in a fresh system. Compiling the
# library takes most of this lane's time, so it is compiled without debug information and without the packages for it, which no test here
# needs.
. "$(dirname "$0")/lane.sh"
install_missing debhelper dpkg-dev lintian
folder=$root/build/packages
rm -rf "$folder"
mkdir -p "$folder/tessera" "$folder/root" || exit 1
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$folder/tessera" || exit 1

builds() {
    (cd "$folder/tessera" && DEB_BUILD_OPTIONS='nocheck noautodbgsym' DEB_CFLAGS_APPEND=-g0 dpkg-buildpackage -us -uc -b) >"$folder/build.log" 2>&1 ||
        { tail -50 "$folder/build.log"; false; }
}
has_no_complaint() {
    lintian --allow-root --fail-on error,warning "$folder"/*.changes
}
# passes TEST: runs a test of debian/tests with the extracted packages.
passes() {
    libraries=$(dirname "$(find "$folder/root/usr/lib" -name libtessera.so)")
    env PACKAGES_ROOT="$folder/root" PKG_CONFIG_PATH="$libraries/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$folder/root" \
        LD_LIBRARY_PATH="$libraries" PATH="$folder/root/usr/bin:$PATH" sh "debian/tests/$1"
}
# Checks the unit file with the path of the extracted tool.
is_unit() {
    sed "s|=/usr/|=$folder/root/usr/|; /^Documentation/d" "$folder/root/usr/share/doc/tessera/tessera.service" >"$folder/tessera.service" || return 1
    complaints=$(systemd-analyze verify "$folder/tessera.service" 2>&1 || echo "it failed")
    echo "$complaints"
    [ -z "$complaints" ]
}
check_packages() {
    . tests/source/tap.sh
    point "the packages are built" builds
    point "lintian has no complaint" has_no_complaint
    for package in libtessera0 libtessera-dev tessera tessera-examples; do
        point "$package can be extracted" dpkg-deb -x "$(echo "$folder/${package}"_*.deb)" "$folder/root"
    done
    point "digits are learned by the installed example" passes digits
    point "the installed tool runs" passes generate
    if command -v systemd-analyze >/dev/null; then
        point "systemd has no complaint about the unit file" is_unit
    fi
    plan
}
run_tap check_packages
