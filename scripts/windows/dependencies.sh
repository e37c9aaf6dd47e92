#!/bin/sh
# scripts/windows/dependencies.sh FOLDER: builds static libraries that tessera needs on Windows (jansson, utf8proc and Check) from
# Debian's source packages, and installs them in FOLDER. Also copies Vulkan's headers there, and writes FOLDER/folder.ini for meson.
# Downloads only into FOLDER, and changes no setting of the system. Does nothing if FOLDER is complete.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/scripts/setup.sh"
[ $# = 1 ] || fail "usage: scripts/windows/dependencies.sh FOLDER"
mkdir -p "$1"
folder=$(cd "$1" && pwd)
[ -e "$folder/complete" ] && exit 0

suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")
mkdir -p "$folder/apt/lists/partial" "$folder/sources"
echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $suite main" \
    >"$folder/apt/sources.list"
# apt_get ARGUMENT…: runs apt-get with only the source packages of sources.list, and with its package lists in the folder.
apt_get() {
    apt-get -qq -o "Dir::Etc::sourcelist=$folder/apt/sources.list" -o Dir::Etc::sourceparts=- \
        -o "Dir::State::lists=$folder/apt/lists" -o "Dir::Cache=$folder/apt" -o APT::Sandbox::User=root "$@"
}
apt_get update
cd "$folder/sources"
for package in check jansson utf8proc; do
    rm -rf "${package:?}"
    apt_get source "$package" >"$package.log" 2>&1 || fail "no source of $package: see $folder/sources/$package.log"
    mv "$package"-*/ "$package"
done

# make PACKAGE OPTION…: builds one of the three libraries with these options of CMake, and installs it.
make() {
    package=$1
    shift
    say "Building $package for Windows"
    {
        cmake -S "$package" -B "$package/build" -DCMAKE_SYSTEM_NAME=Windows -DCMAKE_C_COMPILER=x86_64-w64-mingw32-gcc-posix \
            -DCMAKE_RC_COMPILER=x86_64-w64-mingw32-windres -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
            -DCMAKE_INSTALL_PREFIX="$folder" -G Ninja "$@" &&
            cmake --build "$package/build" && cmake --install "$package/build"
    } >>"$package.log" 2>&1 || {
        tail -n 30 "$package.log" >&2
        fail "could not build $package: see $folder/sources/$package.log"
    }
}
make jansson -DJANSSON_BUILD_DOCS=OFF -DJANSSON_EXAMPLES=OFF -DJANSSON_WITHOUT_TESTS=ON
make utf8proc -DCMAKE_C_FLAGS=-DUTF8PROC_STATIC
make check -DCHECK_ENABLE_TESTS=OFF -DCMAKE_C_FLAGS=-D_POSIX_C_SOURCE=200809L

# Check also installs a DLL, which is removed, and check.pc names the static library libcheck_pic, whose file is libcheck.a.
rm -f "$folder/lib/libcheck.dll.a" "$folder/bin/libcheck.dll"
sed -i "s/-lcheck_pic/-lcheck/" "$folder/lib/pkgconfig/check.pc"

# Vulkan is opened at run time, so its headers are enough.
mkdir -p "$folder/include" "$folder/lib/pkgconfig"
cp -R "$(pkg-config --variable=includedir vulkan)/vulkan" "$(pkg-config --variable=includedir vulkan)/vk_video" "$folder/include/"
cat >"$folder/lib/pkgconfig/vulkan.pc" <<EOF
includedir=$folder/include
Name: vulkan
Description: headers of Vulkan
Version: $(pkg-config --modversion vulkan)
Cflags: -I\${includedir}
EOF
# The options of meson that contain paths of this folder and of the repository. The others are in x86_64-w64-mingw32.ini.
cat >"$folder/folder.ini" <<EOF
[binaries]
exe_wrapper = '$root/scripts/windows/wine.sh'

[built-in options]
pkg_config_path = '$folder/lib/pkgconfig'
EOF
touch "$folder/complete"
