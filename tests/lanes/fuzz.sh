#!/bin/sh
# Fuzzing: libFuzzer generates model files and plans, under the address and undefined-behaviour sanitizers.
# All targets run at the same time, for FUZZ_SECONDS (default 30). Inputs that cause failures stay in build/fuzz; add them to tests/shard/corpus.
. "$(dirname "$0")/lane.sh"
. tests/source/tap.sh
CC=clang configure build/fuzz --werror -Dvulkan=disabled -Dshaderc=disabled -Dtools=disabled -Dfuzz=enabled \
    -Db_sanitize=address,undefined -Db_lundef=false -Dc_args='-fsanitize=fuzzer-no-link -fno-sanitize-recover=all' ||
    exit 1

targets="gguf params plan safetensors"
programs=
for target in $targets; do
    programs="$programs tests/shard/fuzz-$target"
done
# shellcheck disable=SC2086 # several words
build build/fuzz $programs || exit 1
seconds=${FUZZ_SECONDS:-30}
fuzz() { # TARGET: libFuzzer writes new inputs to the first folder
    mkdir -p "build/fuzz/found/$1"
    dictionary=tests/shard/json.dict
    [ "$1" = gguf ] && dictionary=tests/shard/gguf.dict
    "build/fuzz/tests/shard/fuzz-$1" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
        -use_value_profile=1 -dict="$dictionary" -artifact_prefix="build/fuzz/$1-" \
        "build/fuzz/found/$1" "tests/shard/corpus/$1"
}
has_passed() { # TARGET
    [ "$(cat "build/fuzz/$1.status")" = 0 ] && return
    cat "build/fuzz/$1.log"
    return 1
}
fuzz_all() { # each writes its exit status to a file of its own, because all run at the same time
    for target in $targets; do
        (
            fuzz "$target" >"build/fuzz/$target.log" 2>&1
            echo $? >"build/fuzz/$target.status"
        ) &
    done
    wait
    for target in $targets; do
        point "fuzz $target for $seconds s" has_passed "$target"
    done
    plan
}
run_tap fuzz_all
