#!/bin/sh
# gpt_golden.sh GPT TESSERA FINAL_WEIGHTS DATA few|all STEPS: trainings have the losses and gradient norms that PyTorch recorded in 64 bits,
# those of experts also the auxiliary losses and the loads,
# from the same weights and windows. DATA has the recorded runs. With "few" the trainings use few grids, with "all" every kind of grid of up
# to four ranks and every strategy. If STEPS is 200, the number of recorded steps, both models are trained on all grids, and the last
# weights are compared, too. That takes a quarter of an hour:
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
    options=$*
    [ "$steps" = 200 ] && set -- "$@" --save "$folder/model.safetensors"
    weights=$data/${style}_init.safetensors
    [ -f "$weights" ] || weights=$weights.index.json
    case $style in moe*) weights=$data/moe_init.safetensors ;; esac
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
    # Run one rank first, to fill the cache of compiled kernels: both ranks of the next run would otherwise
    # compile the same kernels at the same time.
    run gpt2 1 --batch 6 --accumulate 2 --recompute
    run gpt2 2 --grid 2x1 --strategy full --recompute
    run llama 2 --grid 1x2
    run gpt2 2 --context-parallel 2 --context-rates 3,1 --recompute
    run gpt2 2 --pipeline 2 --batch 3 --accumulate 4
    run moe_aux 2 --grid 2x1 --strategy full --recompute --experts-over data
    run moe_sigmoid_bias 2 --grid 1x2
    exit
fi
each gpt2 2 --grid 2x1 --strategy hybrid
each llama 2 --grid 2x1 --strategy weighted
each llama 4 --grid 2x2
each llama 4 --grid 1x2 --context-parallel 2 --strategy full --recompute
each gpt2 4 --grid 2x2 --strategy layerwise
each llama 4 --grid 1x4 --recompute
each gpt2 4 --grid 1x2 --pipeline 2 --batch 3 --accumulate 4
each llama 4 --grid 2x1 --pipeline 2 --batch 6 --accumulate 2 --strategy layerwise --recompute
each gpt2 3 --pipeline 3
if [ "$steps" = 200 ]; then # of experts, 100 are recorded
    steps=100
    for style in moe_softmax moe_aux moe_sigmoid_bias; do
        run $style 1
        run $style 2 --grid 1x2
        run $style 2 --grid 2x1
        run $style 4 --grid 2x2 --strategy full --recompute
        run $style 2 --grid 2x1 --experts-over data
        run $style 4 --grid 2x2 --experts-over data --strategy full --recompute
    done
    steps=200
else
    run moe_aux 4 --grid 2x2 --experts-over data
    run moe_sigmoid_bias 2 --pipeline 2 --batch 2 --accumulate 2
fi
[ "$steps" = 200 ] || exit 0
both 1
both 1 --recompute
both 2 --grid 1x2 --recompute
both 2 --grid 2x1 --strategy layerwise
both 2 --grid 2x1 --batch 6 --accumulate 2
both 2 --pipeline 2 --batch 3 --accumulate 4 --recompute
both 2 --grid 1x2
both 2 --grid 2x1
both 2 --grid 2x1 --strategy full
both 2 --grid 2x1 --strategy full --recompute
both 4 --grid 2x2 --strategy full --recompute
both 4 --grid 1x4
both 2 --context-parallel 2
both 2 --pipeline 2 --batch 3 --accumulate 4
both 4 --grid 1x2 --pipeline 2 --batch 3 --accumulate 4 --recompute
both 4 --grid 2x1 --pipeline 2 --batch 6 --accumulate 2
