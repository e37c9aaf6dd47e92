#!/bin/sh
# train_golden.sh TESSERA FINAL_WEIGHTS DATA TEXT few|all STEPS: trainings have the losses and gradient norms that PyTorch recorded in 64 bits,
# those of experts also the auxiliary losses and the loads, from the same weights and rows. DATA has the recorded runs. With "few" the
# trainings use few grids, with "all" grids of up to four ranks in which any two kinds of division meet, and every strategy. If STEPS is 200,
# the number of recorded steps, both models are trained on all grids, and the last weights are compared, too. That takes a quarter of an hour:
#
#     tests/training/train_golden.sh BUILD/src/cli/tessera BUILD/tests/training/final_weights tests/data/training \
#         examples/data/tinyshakespeare.txt all 200
set -u
tessera=$1
final_weights=$2
data=$3
text=$4
which=$5
steps=$6
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

run() { # STYLE RANKS OPTION...
    style=$1
    ranks=$2
    shift 2
    options=$*
    [ "$steps" = 200 ] && set -- "$@" --output "$folder/model"
    weights=$data/${style}_init.safetensors
    [ -f "$weights" ] || weights=$weights.index.json
    case $style in moe*) weights=$data/moe_init.safetensors ;; esac
    timeout 900 "$tessera" launch -n "$ranks" -- "$tessera" train --config "$data/${style}_trajectory.json" \
        --offsets "$data/${style}_trajectory.json" --init "$weights" --data "$text" --held-out 0 --steps "$steps" --log "$folder/log" "$@" \
        >"$folder/out" 2>&1 || {
        echo "$style $options: failed"
        cat "$folder/out"
        exit 1
    }
    difference=$(awk -v steps="$steps" -f "$here/trajectory.awk" "$data/${style}_trajectory.json" "$folder/log") || {
        echo "$style $options: $difference"
        exit 1
    }
    if [ "$steps" = 200 ]; then
        weights=$("$final_weights" "$data/${style}_trajectory.json" "$folder/model/model.safetensors") || {
            echo "$style $options: ${weights:-wrong}"
            exit 1
        }
        difference="$difference; $weights"
    fi
    echo "$style $options: $difference"
}

# Trains on one grid: the model STYLE only, or both models if all 200 steps are trained.
each() { # STYLE RANKS OPTION...
    if [ "$steps" = 200 ]; then
        shift
        both "$@"
    else
        run "$@"
    fi
}
both() { # RANKS OPTION...
    run llama "$@"
    run gpt2 "$@"
}

if [ "$which" = few ]; then
    run llama 2
    run moe_aux 2 --data-parallel 2 --fsdp --recompute --experts-over data
    exit
fi
each gpt2 2 --data-parallel 2 --strategy hybrid
[ "$steps" = 200 ] && both 2 --data-parallel 2 --strategy weighted
each llama 4 --data-parallel 2 --stages 2 --accumulate 2 --strategy layerwise --recompute
each gpt2 3 --stages 3
each llama 3 --rates 2,1,1
if [ "$steps" = 200 ]; then # of experts, 100 are recorded
    steps=100
    for style in moe_softmax moe_aux moe_sigmoid_bias; do
        run $style 1
        run $style 2
        run $style 2 --data-parallel 2
        run $style 4 --data-parallel 2 --fsdp --recompute
        run $style 2 --data-parallel 2 --experts-over data
        run $style 4 --data-parallel 2 --experts-over data --fsdp --recompute
    done
    steps=200
else
    run moe_aux 4 --data-parallel 2 --experts-over data --strategy weighted
    run moe_sigmoid_bias 4 --stages 2 --accumulate 2
fi
[ "$steps" = 200 ] || exit 0
both 1
both 1 --recompute
both 2 --recompute
both 2 --data-parallel 2 --strategy layerwise
both 2 --data-parallel 2 --accumulate 2
both 2 --stages 2 --accumulate 4 --recompute
both 2
both 2 --data-parallel 2
both 2 --data-parallel 2 --fsdp
both 2 --data-parallel 2 --fsdp --recompute
both 4 --data-parallel 2 --fsdp --recompute
both 4
both 2 --stages 2 --accumulate 4
both 4 --stages 2 --accumulate 4 --recompute
both 4 --data-parallel 2 --stages 2 --accumulate 2
both 4 --data-parallel 2
both 4 --data-parallel 2 --strategy layerwise
both 4 --recompute
