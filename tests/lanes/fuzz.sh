#!/bin/sh
# Headers of model files and plans made up by libFuzzer, under the address and undefined-behaviour sanitizers. FUZZ_SECONDS is the
# time for each of the targets. What a fuzzer finds stays in build/fuzz; it belongs into tests/shard/corpus.
. "$(dirname "$0")/lane.sh"
. tests/source/tap.sh
CC=clang configure build/fuzz --werror -Dvulkan=disabled -Dshaderc=disabled -Dtools=disabled -Dfuzz=enabled \
    -Db_sanitize=address,undefined -Db_lundef=false -Dc_args='-fsanitize=fuzzer-no-link -fno-sanitize-recover=all' ||
    exit 1

fuzz() { # TARGET: what is new goes into the first folder
    mkdir -p "build/fuzz/found/$1"
    dictionary=tests/shard/json.dict
    [ "$1" = gguf ] && dictionary=tests/shard/gguf.dict
    "build/fuzz/tests/shard/fuzz-$1" -max_total_time="${FUZZ_SECONDS:-20}" -timeout=10 -rss_limit_mb=2048 \
        -use_value_profile=1 -dict="$dictionary" -artifact_prefix="build/fuzz/$1-" \
        "build/fuzz/found/$1" "tests/shard/corpus/$1"
}
fuzz_all() {
    for target in gguf params plan safetensors; do
        ninja -C build/fuzz "tests/shard/fuzz-$target" >build/fuzz.log 2>&1 || cat build/fuzz.log >&2
        point "fuzz $target for ${FUZZ_SECONDS:-20} s" fuzz "$target"
    done
    plan
}
run_tap fuzz_all
