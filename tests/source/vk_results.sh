#!/bin/sh
# vk_results.sh ROOT CC…: of the functions that src/gpu/device/vk.h lists, those that return a VkResult, as X(Name) a line. What a function
# returns is asked of the preprocessed headers.
set -eu
cd "$1"
shift
"$@" -E -I src -I include src/gpu/device/vk.h | tr '\n' ' ' | grep -oE 'typedef +VkResult *\( *\*PFN_vk[A-Za-z0-9]+' |
    sed 's/.*PFN_vk//' | sort -u >"${TMPDIR:-/tmp}/vk-results.$$"
trap 'rm -f "${TMPDIR:-/tmp}/vk-results.$$"' EXIT
sed -n 's/^ *X(\([A-Za-z0-9]*\)).*/\1/p' src/gpu/device/vk.h | sort -u | comm -12 - "${TMPDIR:-/tmp}/vk-results.$$" |
    sed 's/.*/X(&)/'
