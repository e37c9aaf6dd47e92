#!/bin/sh
# gpt_golden.sh GPT TESSERA FINAL_WEIGHTS DATA few|all STEPS: the losses and gradient norms of trainings that PyTorch recorded in 64 bits,
# from the same weights and windows, on one grid each, or on every grid of up to four ranks and with every strategy; with fewer than 200
# steps, one model on half of these and the other on the rest. DATA has the recorded runs. With all of their 200 steps, also the last
# weights. That takes a quarter of an hour:
#
#     examples/test/gpt_golden.sh BUILD/examples/gpt BUILD/src/cli/tessera BUILD/examples/final_weights tests/data/training all 200
set -u
gpt=$1
tessera=$2
final_weights=$3
data=$4
which=$5
steps=$6
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

run() { # STYLE RANKS OPTION...
    style=$1
    ranks=$2
    shift 2
    # In a few steps, one model takes every other grid and the other model the rest.
    count=$((count + 1))
    [ "$which" = all ] && [ "$steps" != 200 ] && [ $((count % 2)) = "$skipped" ] && return
    options=$*
    [ "$steps" = 200 ] && set -- "$@" --save "$folder/model.safetensors"
    weights=$data/${style}_init.safetensors
    [ -f "$weights" ] || weights=$weights.index.json
    timeout 900 "$tessera" launch -n "$ranks" -- "$gpt" --config "$data/${style}_trajectory.json" --offsets "$data/${style}_trajectory.json" \
        --init "$weights" --steps "$steps" --eval-every 0 --characters 0 --log "$folder/log" "$@" >"$folder/out" 2>&1 || {
        echo "$style $options: failed"
        cat "$folder/out"
        exit 1
    }
    difference=$(awk -v steps="$steps" -f "$here/trajectory.awk" "$data/${style}_trajectory.json" "$folder/log") || {
        echo "$style $options: $difference"
        exit 1
    }
    if [ "$steps" = 200 ]; then
        weights=$("$final_weights" "$data/${style}_trajectory.json" "$folder/model.safetensors") || {
            echo "$style $options: ${weights:-wrong}"
            exit 1
        }
        difference="$difference; $weights"
    fi
    echo "$style $options: $difference"
}

count=0
if [ "$which" = few ]; then
    run llama 2 --grid 1x2
    run gpt2 2 --grid 2x1 --strategy full --recompute
    run gpt2 2 --pipeline 2 --batch 3 --accumulate 4
    exit
fi
for style in llama gpt2; do
    count=0
    [ "$style" = llama ] && skipped=0 || skipped=1
    run "$style" 2 --grid 1x2
    run "$style" 2 --grid 2x1 --strategy full --recompute
    run "$style" 2 --grid 2x1 --batch 6 --accumulate 2
    run "$style" 1
    run "$style" 1 --recompute
    run "$style" 2 --grid 1x2 --recompute
    run "$style" 2 --grid 2x1
    run "$style" 2 --grid 2x1 --strategy full
    run "$style" 2 --grid 2x1 --strategy layerwise
    run "$style" 2 --grid 2x1 --strategy hybrid
    run "$style" 2 --grid 2x1 --strategy weighted
    run "$style" 4 --grid 2x2
    run "$style" 4 --grid 2x2 --strategy layerwise
    run "$style" 4 --grid 2x2 --strategy full --recompute
    run "$style" 4 --grid 1x4
    run "$style" 4 --grid 1x4 --recompute
    run "$style" 2 --pipeline 2 --batch 3 --accumulate 4
    run "$style" 2 --pipeline 2 --batch 3 --accumulate 4 --recompute
    run "$style" 4 --grid 1x2 --pipeline 2 --batch 3 --accumulate 4
    run "$style" 4 --grid 1x2 --pipeline 2 --batch 3 --accumulate 4 --recompute
    run "$style" 4 --grid 2x1 --pipeline 2 --batch 6 --accumulate 2
    run "$style" 4 --grid 2x1 --pipeline 2 --batch 6 --accumulate 2 --strategy layerwise --recompute
    run "$style" 3 --pipeline 3
done
