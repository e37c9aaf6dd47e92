#!/bin/sh
# Windows: built by MinGW-w64; unit tests, devices, benchmarks, generating and training under Wine, on lavapipe.
# shellcheck disable=SC2317 # functions that `point` and `run_tap` call
. "$(dirname "$0")/lane.sh"
install_missing gcc-mingw-w64-x86-64-posix cmake dpkg-dev wine64 xvfb mesa-vulkan-drivers
folder=$root/build/windows
scripts/windows/dependencies.sh "$folder-dependencies" || exit 1
export WINEPREFIX="$folder-wine"

units="base checkpoint comm_algorithms comm_reduce loader model pipeline platform quant rng sampler sampler_custom seed shard tensor tokenizer training"
gpu="families stream memory"
compile_with_ccache x86_64-w64-mingw32-gcc-posix
# shellcheck disable=SC2086 # options
configure "$folder" --cross-file scripts/windows/x86_64-w64-mingw32.ini --cross-file "$folder-dependencies/folder.ini" \
    $ccache_options -Doptimization=1 -Ddebug=false -Dbench=enabled || exit 1
# shellcheck disable=SC2046,SC2086 # several words
build "$folder" src/cli/tessera.exe examples/digits.exe $(printf 'tests/test-%s.exe ' $units) \
    $(printf 'tests/gpu/test-gpu-%s.exe ' $gpu) || exit 1

# One server for all programs: Wine ends the usual one a moment after its last program, and a program that starts in that moment loses it.
for wineserver in wineserver64 /usr/lib/wine/wineserver64 wineserver; do
    command -v "$wineserver" >/dev/null && break
done
mkdir -p "$WINEPREFIX"
"$wineserver" --persistent || exit 1
Xvfb -displayfd 3 -screen 0 320x200x16 3>"$folder.display" >/dev/null 2>&1 &
display_server=$!
trap '"$wineserver" --kill; kill "$display_server"' EXIT
for _ in $(seq 100); do
    [ -s "$folder.display" ] && break
    sleep 0.1
done
DISPLAY=:$(cat "$folder.display")
export DISPLAY
lavapipe=$(find /usr/share/vulkan/icd.d -name 'lvp_icd*.json' | head -n 1)
export VK_DRIVER_FILES="$lavapipe" VK_ICD_FILENAMES="$lavapipe"

result=0
wine() {
    scripts/windows/wine.sh "$@"
}
for test in $units; do
    run_tap wine "$folder/tests/test-$test.exe" || result=1
done >"$folder.tap"
for test in $gpu; do
    TESSERA_SELF_TEST=off CK_EXCLUDE_TAGS='slow packed gpu' run_tap wine "$folder/tests/gpu/test-gpu-$test.exe" || result=1
done >>"$folder.tap"
grep '^not ok' "$folder.tap"

# Runs a command, and prints and counts a test that passes if the command succeeds.
point() { # NAME COMMAND…
    name=$1
    shift
    if "$@" >"$folder.log" 2>&1; then
        echo "ok - $name"
        echo "1 0" >>"$TALLY"
    else
        cat "$folder.log"
        echo "not ok - $name"
        echo "0 1" >>"$TALLY"
        result=1
    fi
}
tessera() {
    WINEPATH="Z:$(echo "$folder/src" | tr / '\134')" wine "$folder/src/cli/tessera.exe" "$@"
}
lists_lavapipe() {
    tessera devices | grep llvmpipe
}
refuses_launch() {
    ! tessera launch -n 2 x 2>"$folder.said" && grep 'launch: this system has communicators of one process only' "$folder.said"
}
generates() {
    tessera generate "$models/stories260K-f32.gguf" --prompt 'Once upon a time' --max-tokens 12 --greedy |
        tee "$folder.said" | grep -x 'Once upon a time, there was a little girl named Lily.*'
}
talks() {
    printf 'Once upon\n/exit\n' | tessera chat "$models/stories260K-f32.gguf" --format vicuna --max-tokens 6 --greedy >"$folder.said" &&
        grep . "$folder.said"
}
keeps_a_cache() {
    find "$WINEPREFIX" -path '*/AppData/Local/tessera/pipelines-*' | grep .
}
benchmarks() {
    rm -rf "$folder-benchmarks"
    mkdir -p "$folder-benchmarks"
    tessera bench matmul --shape 33x65x17 --time 0.01 -o "$folder-benchmarks/résultat.json" >"$folder.said" &&
        grep '^f32 *33 *65 *17 ' "$folder.said" && grep '"os": "Windows' "$folder-benchmarks/résultat.json" &&
        grep '"benchmark": "fma_peak"' "$folder-benchmarks/résultat.json" &&
        tessera bench report "$folder-benchmarks/résultat.json" -o "$folder-benchmarks/page.html" &&
        grep '</html>' "$folder-benchmarks/page.html"
}
measures() { # BENCHMARK PATTERN: the benchmark prints a line that matches the pattern
    tessera bench "$1" --time 0.01 >"$folder.said" && grep "$2" "$folder.said"
}
tunes() {
    tessera bench --tune --dtype f32 --shape 40x64x48 --time 0.01 --json >"$folder.said" && grep '"schema": "tessera.tuning"' "$folder.said" &&
        find "$WINEPREFIX" -path '*/AppData/Local/tessera/tuning-*' | grep . && tessera devices | grep 'tuning .*classes of products'
}
measures_a_model() {
    tessera bench model "$models/stories260K-f32.gguf" -p 16 -n 4 -r 1 >"$folder.said" && grep '| *tg4 |' "$folder.said"
}
lacks_processes() {
    measures launch 'launch: fresh processes: this system starts no processes for them' &&
        ! tessera bench all-reduce 2>"$folder.said" &&
        grep "bench: unknown benchmark 'all-reduce' in this build, which has no UCX" "$folder.said"
}
learns() {
    WINEPATH="Z:$(echo "$folder/src" | tr / '\134')" wine "$folder/examples/digits.exe" --epochs 2 | tee "$folder.said"
    awk '$1 == 2 { good = $4 > 90 } END { exit !good }' "$folder.said"
}
# The name of the model's folder is not ASCII.
models="$folder-modèles-模型"
mkdir -p "$models"
cp tests/data/model/stories260K-f32.gguf "$models/"
find "$WINEPREFIX" -path '*/AppData/Local/tessera/*' -delete 2>/dev/null
point "devices lists lavapipe" lists_lavapipe
point "launch is refused" refuses_launch
point "generate reads a model from a folder with a name in UTF-8" generates
point "chat replies" talks
point "the cache is in %LOCALAPPDATA%" keeps_a_cache
point "bench writes a result and a page" benchmarks
point "bench copy" measures copy '^transpose '
point "bench plan" measures plan '^weighted '
point "bench --tune" tunes
point "bench model" measures_a_model
point "what needs processes or UCX is left out with a sentence" lacks_processes
point "digits learns" learns
exit "$result"
