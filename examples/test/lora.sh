#!/bin/sh
# lora.sh PROGRAM MODEL: an adapter learns, is the same after it has been saved and loaded, and after it has been merged.
set -u
program=$1 model=$2
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
out=$("$program" "$model" "$folder/adapter") || exit 1
echo "$out"
echo "$out" | tr -d , | awk '{ exit !($4 < $2 / 10 && $6 == $4 && $8 - $4 < 0.002 && $4 - $8 < 0.002) }' || exit 1
"$program" && exit 1 # without arguments
"$program" "$folder" "$folder/other" && exit 1
exit 0
