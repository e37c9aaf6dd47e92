#!/bin/sh
# Fuzzing: libFuzzer generates models, lists of weights, tokenizers, plans, clusters, and bodies of requests to tessera serve, under the address and undefined-behaviour sanitizers. All
# targets run at the same time, for FUZZ_SECONDS (default 30), at a low priority beside other lanes. Inputs that cause failures stay in
# build/fuzz; add them to tests/MODULE/corpus.
. "$(dirname "$0")/lane.sh"
. tests/source/tap.sh
CC_LD=lld configure_in build/fuzz clang -Dvulkan=disabled -Dshaderc=disabled -Dfuzz=enabled \
    -Db_sanitize=address,undefined -Db_lundef=false "-Dc_args=-fsanitize=fuzzer-no-link -fno-sanitize-recover=all $line_numbers" || exit 1

targets="checkpoint/part cli/request grammar/grammar model/gguf model/json planner/cluster shard/gguf shard/params shard/plan shard/safetensors tokenizer/gguf tokenizer/json"
programs=
for target in $targets; do
    programs="$programs tests/fuzz/fuzz-${target%/*}-${target#*/}"
done
# shellcheck disable=SC2086 # several words
build build/fuzz $programs || exit 1
seconds=${FUZZ_SECONDS:-30}
# Copies small files of tests/data, so that they are inputs, too. Most targets have none.
golden() { # TARGET
    mkdir -p "build/fuzz/golden/$1"
    case $1 in
    tokenizer/json) cp tests/data/tokenizer/*.tokenizer.json "build/fuzz/golden/$1" ;;
    tokenizer/gguf) cp tests/data/tokenizer/stories260K* "build/fuzz/golden/$1" ;;
    esac
}
fuzz() { # MODULE/NAME: libFuzzer writes new inputs to the first folder
    module=${1%/*}
    name=${1#*/}
    golden "$1"
    dictionary=tests/$module/json.dict
    [ "$module" = checkpoint ] && dictionary=tests/shard/json.dict
    [ "$module" = cli ] && dictionary=tests/cli/request.dict
    [ "$module" = grammar ] && dictionary=tests/grammar/grammar.dict
    [ "$name" = gguf ] && dictionary=tests/$module/gguf.dict
    nice -n 15 "build/fuzz/tests/fuzz/fuzz-$module-$name" -max_total_time="$seconds" -timeout=60 -rss_limit_mb=2048 \
        -use_value_profile=1 -dict="$dictionary" -artifact_prefix="build/fuzz/$module-$name-" \
        "build/fuzz/found/$1" "tests/$module/corpus/$name" "build/fuzz/golden/$1"
}
has_passed() { # TARGET
    [ "$(cat "build/fuzz/found/$1.status")" = 0 ] && return
    cat "build/fuzz/found/$1.log"
    return 1
}
fuzz_all() { # each writes its exit status to a file of its own, because all run at the same time
    for target in $targets; do
        mkdir -p "build/fuzz/found/$target"
        (
            fuzz "$target" >"build/fuzz/found/$target.log" 2>&1
            echo $? >"build/fuzz/found/$target.status"
        ) &
    done
    wait
    for target in $targets; do
        point "fuzz $target for $seconds s" has_passed "$target"
    done
    plan
}
run_tap fuzz_all
