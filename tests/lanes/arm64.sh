#!/bin/sh
# arm64: cross-built; unit tests of plain C, and on lavapipe every kind of kernel once, training and generating, under qemu's user mode.
# The libraries and the driver for arm64 are packages of this Debian or Ubuntu, which are extracted into build/arm64-root.
# shellcheck disable=SC2317 # functions that `run_tap` calls
. "$(dirname "$0")/lane.sh"
arm64=build/arm64-root
scripts/arm64_root.sh "$arm64" || exit 1
lavapipe=$(find "$root/$arm64/usr/share/vulkan/icd.d" -name 'lvp_icd*.json')
compile_with_ccache aarch64-linux-gnu-gcc "--sysroot=$root/$arm64"
# shellcheck disable=SC2086 # options
configure build/arm64 --cross-file "$arm64/root.ini" --cross-file scripts/arm64.ini $ccache_options --werror -Doptimization=1 -Ddebug=false \
    -Dvulkan=enabled -Dshaderc=disabled -Ducx=disabled -Dpmix=disabled -Dtools=enabled -Dbench=disabled -Dtests=enabled "-Dlavapipe_icd=$lavapipe" || exit 1
programs=$(meson test -C build/arm64 --no-rebuild --list --suite emulated 2>/dev/null |
    sed -n 's|^tessera:[^ ]* / lavapipe-|tests/gpu/test-gpu-|p; t; s|^tessera:[^ ]* / |tests/test-|p')
# shellcheck disable=SC2086 # several words
build build/arm64 $programs examples/digits src/cli/tessera || exit 1
timeout_multiplier=4
export CK_TIMEOUT_MULTIPLIER=4
result=0
run_suites build/arm64 emulated || result=1

# Runs whole programs, with the self-tests of their kernels. The generated text must be the same as on other processors.
whole_programs() {
    . tests/source/tap.sh
    point "digits learns on lavapipe" learned_digits
    point "the tool generates on lavapipe" generated_text
    plan
}
emulate() {
    VK_DRIVER_FILES="$lavapipe" VK_ICD_FILENAMES="$lavapipe" XDG_CACHE_HOME="$root/build/arm64/cache" qemu-aarch64 -L "$arm64" \
        -E "LD_LIBRARY_PATH=$root/build/arm64/src" "$@" | tee build/arm64.said
}
learned_digits() {
    emulate build/arm64/examples/digits --epochs 1
    awk '$1 == 1 { good = $4 > 80 } END { exit !good }' build/arm64.said
}
generated_text() {
    emulate build/arm64/src/cli/tessera generate tests/data/model/stories260K-f32.gguf --prompt 'Once upon a time' --max-tokens 12 --greedy
    grep -qx 'Once upon a time, there was a little girl named Lily.*' build/arm64.said
}
run_tap whole_programs || result=1
exit "$result"
