#!/bin/sh
# arm64_root.sh FOLDER: makes a folder with C's library and what tessera needs for arm64, from packages of this Debian or Ubuntu, which are
# extracted and not installed. So this machine's own packages stay as they are.
set -eu
# Makes it again when this script has changed.
cmp -s "$0" "$1/made-by" && exit
[ -e "$1/root.ini" ] && rm -rf "$1"
mkdir -p "$1"
folder=$(cd "$1" && pwd)
mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial"
: >"$folder/apt/status"
APT_CONFIG=$folder/apt/apt.conf
export APT_CONFIG
cat >"$APT_CONFIG" <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "root";
Dir::State "$folder/apt";
Dir::State::status "$folder/apt/status";
Dir::Cache "$folder/apt/cache";
END
apt-get -qq update
# Downloads these packages and everything that they depend on: the status file is empty, so apt regards no package as installed.
apt-get -qq install --download-only --no-install-recommends libc6-dev check libsubunit-dev libjansson-dev libsodium-dev libutf8proc-dev libvulkan-dev \
    mesa-vulkan-drivers >"$folder/apt/log" 2>&1
for package in "$folder"/apt/cache/archives/*.deb; do
    dpkg-deb -x "$package" "$folder"
done
rm -r "$folder/apt"
printf "[constants]\nroot = '%s'\n" "$folder" >"$folder/root.ini"
cp "$0" "$folder/made-by"
