#!/bin/sh
# arm64.sh FOLDER: makes a sysroot for arm64 there, from packages of this Debian that are extracted, not installed.
set -eu
folder=$1
mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial" "$folder/packages" "$folder/root"
touch "$folder/apt/status"
apt() {
    apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State="$folder/apt" -o Dir::State::status="$folder/apt/status" \
        -o Dir::Cache="$folder/apt/cache" -o APT::Sandbox::User=root "$@"
}
[ -e "$folder/root/.done" ] && exit
apt update
(cd "$folder/packages" && apt download "$@" libc6:arm64)
