#!/bin/sh
# gpt_golden.sh GPT TESSERA DATA STEPS STYLE...: the losses and gradient norms of a training that PyTorch recorded in 64 bits, from the same
# weights and windows, on every grid of up to four ranks and with every strategy. DATA has the recorded runs.
set -u
gpt=$1
tessera=$2
data=$3
steps=$4
shift 4
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

run() { # STYLE RANKS OPTION...
    style=$1
    ranks=$2
    shift 2
    weights=$data/${style}_init.safetensors
    [ -f "$weights" ] || weights=$weights.index.json
    timeout 900 "$tessera" launch -n "$ranks" -- "$gpt" --config "$data/${style}_trajectory.json" --offsets "$data/${style}_trajectory.json" \
        --init "$weights" --steps "$steps" --eval-every 0 --characters 0 --log "$folder/log" "$@" >"$folder/out" 2>&1 || {
        echo "$style $*: failed"
        cat "$folder/out"
        exit 1
    }
    difference=$(awk -v steps="$steps" -f "$here/trajectory.awk" "$data/${style}_trajectory.json" "$folder/log") || {
        echo "$style $*: $difference"
        exit 1
    }
    echo "$style $*: $difference"
}

for style in "$@"; do
    run "$style" 1
    run "$style" 2 --grid 1x2
    run "$style" 2 --grid 2x1 --strategy full
    run "$style" 4 --grid 2x2 --strategy layerwise --recompute
    run "$style" 4 --grid 1x4 --recompute
    run "$style" 2 --grid 2x1 --strategy hybrid
    run "$style" 2 --grid 2x1 --strategy weighted
    run "$style" 2 --grid 2x1
done
