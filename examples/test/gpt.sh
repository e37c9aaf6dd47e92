#!/bin/sh
# gpt.sh GPT TESSERA DATA: gpt has the losses, gradient norms and loads of experts that PyTorch recorded in 64 bits, on grids of two ranks.
# It also trains a new model of given sizes. What it saves is a model. Wrong options and files are named. DATA has the recorded runs.
set -u
gpt=$1
tessera=$2
data=$3
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

run() { # STYLE WEIGHTS RANKS OPTION...
    style=$1
    weights=$2
    ranks=$3
    shift 3
    timeout 900 "$tessera" launch -n "$ranks" -- "$gpt" --config "$data/${style}_trajectory.json" --offsets "$data/${style}_trajectory.json" \
        --init "$data/$weights" --steps 4 --eval-every 0 --log "$folder/log" "$@" >"$folder/out" 2>&1 || {
        echo "$style $*: failed"
        cat "$folder/out"
        exit 1
    }
    difference=$(awk -v steps=4 -f "$here/../../tests/training/trajectory.awk" "$data/${style}_trajectory.json" "$folder/log") || {
        echo "$style $*: $difference"
        exit 1
    }
    echo "$style $*: $difference"
}
# refuses STATUS WORDS OPTION...: needs no device
refuses() {
    wanted=$1
    words=$2
    shift 2
    said=$(VK_DRIVER_FILES=/proc/nonexistent VK_ICD_FILENAMES=/proc/nonexistent "$gpt" "$@" 2>&1 >/dev/null)
    status=$?
    case "$status:$said" in
    "$wanted":*"$words"*) ;;
    *)
        echo "gpt $*: expected \"$words\" and status $wanted, got status $status: $said"
        exit 1
        ;;
    esac
}

refuses 2 "a width of 128 does not divide over 3 heads" --heads 3
refuses 2 "a choice of gpt2 and llama, not bert" --style bert
refuses 2 "a token cannot use 5 of 4 experts" --experts 4 --experts-used 5
refuses 2 "--balance, --bias-rate and --experts-over need --experts" --balance 1
refuses 2 "--layers takes a number from 1 to 1000, not 0" --layers 0
refuses 2 "--warmup 30 is not less than --decay 20" --steps 20 --warmup 30
refuses 2 "--pipeline 5 has more stages than the model has blocks, 4" --pipeline 5
refuses 2 "--tensor-rates has 1 numbers, but --grid has 2 tensor-parallel ranks" --grid 1x2 --tensor-rates 3
refuses 2 "unexpected argument x" x
refuses 1 "$folder/none: No such file" --text "$folder/none"
printf 'abc\377def' >"$folder/text"
refuses 1 "$folder/text: byte 3 is not UTF-8" --text "$folder/text"
echo '{}' >"$folder/config"
refuses 1 "config is no recorded run" --config "$folder/config"
refuses 1 "has 200 steps, not 201" --config "$data/llama_trajectory.json" --offsets "$data/llama_trajectory.json" --steps 201

run gpt2 gpt2_init.safetensors.index.json 2 --context-parallel 2 --context-rates 3,1 --batch 6 --accumulate 2 --recompute
"$gpt" --layers 1 --width 32 --heads 2 --block 16 --batch 2 --steps 1 --experts 8 --experts-used 2 >"$folder/out" 2>&1 ||
    { cat "$folder/out" && exit 1; }
mkdir "$folder/model"
run moe_aux moe_init.safetensors 2 --grid 2x1 --strategy full --experts-over data --save "$folder/model/model.safetensors"
"$tessera" info "$folder/model" | grep -q qwen3_moe || { echo "the saved model cannot be read" && exit 1; }
