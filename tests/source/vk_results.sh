#!/bin/sh
# vk_results.sh ROOT CC…: prints the functions listed in src/gpu/device/vk.h that return a VkResult, one X(Name) per line. The preprocessed
# Vulkan headers give the return types.
set -eu
cd "$1"
shift
"$@" -E -I src -I include src/gpu/device/vk.h | tr '\n' ' ' | grep -oE 'typedef +VkResult *\([^;*]*\*PFN_vk[A-Za-z0-9]+' |
    sed 's/.*PFN_vk//' | sort -u >"${TMPDIR:-/tmp}/vk-results.$$"
trap 'rm -f "${TMPDIR:-/tmp}/vk-results.$$"' EXIT
sed -n 's/^ *X(\([A-Za-z0-9]*\)).*/\1/p' src/gpu/device/vk.h | sort -u | comm -12 - "${TMPDIR:-/tmp}/vk-results.$$" |
    sed 's/.*/X(&)/'
