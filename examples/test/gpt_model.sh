#!/bin/sh
# gpt_model.sh GPT TESSERA RANDOM_MODEL GGUF TEXT: gpt --model continues the training of given models. Its loss before the first step is that
# of the logits that `tessera generate` computes, for each family. Several ranks get the losses of one. What it saves gives the last loss
# again, and generates text.
set -u
gpt=$1
tessera=$(realpath "$2")
random_model=$3
gguf=$4
export TESSERA_TOOL="$tessera"
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
head -c 1500 "$5" >"$folder/text"

fail() {
    echo "$1"
    cat "$folder/out"
    exit 1
}

# train MODEL OPTION...: runs gpt with windows that fill the held-out part, so that there is only one to evaluate.
train() {
    model=$1
    shift
    timeout 240 "$gpt" --model "$folder/$model" --text "$folder/text" --block "$block" --batch 4 --eval-batches 1 --learning-rate 0.001 \
        --warmup 0 --characters 0 --log "$folder/log" "$@" >"$folder/out" 2>&1
}
held_out() {
    sed -n 's/.*"held_out_loss": \([0-9.]*\).*/\1/p' "$folder/log" | tail -1
}
# equal A B [MOST]: the two losses differ by at most MOST (2e-6) of their values.
equal() {
    awk -v a="$1" -v b="$2" -v most="${3:-2e-6}" 'BEGIN { d = a - b; exit !(a > 0 && b > 0 && d <= most * a && -d <= most * a) }'
}

# Prints the mean loss of the tokens that follow each token of $window, from the logits in a file.
loss_of_logits() {
    awk -v window="$window,$last" '
        BEGIN { tokens = split(window, token, ",") }
        /"logits": \[/ { inside = 1; next }
        inside && /^    \[/ { row++; n = 0 }
        inside && /^      / { value = $1; sub(/,/, "", value); logit[n++] = value + 0 }
        inside && /^    \]/ {
            top = logit[0]; sum = 0
            for (i = 1; i < n; i++) if (logit[i] > top) top = logit[i]
            for (i = 0; i < n; i++) sum += exp(logit[i] - top)
            if (row < tokens) { loss += top + log(sum) - logit[token[row + 1]]; rows++ }
        }
        END { printf "%.9g %d\n", loss / rows, rows }' "$1"
}

"$tessera" convert "$gguf" "$folder/stories" >"$folder/out" 2>&1 || fail "the GGUF file cannot be converted"
# ids FILE: prints the tokens of a file, one a line.
ids() {
    "$tessera" tokenize "$folder/stories" <"$1" | sed -n '/"ids"/,/\]/s/^ *\([0-9]\{1,\}\),\{0,1\}$/\1/p'
}
# use_ids: sets `block`, `window` and `last` to the held-out part of the tokens in the file ids.
use_ids() {
    count=$(wc -l <"$folder/ids")
    held=$(((count + 9) / 10))
    block=$((held - 1))
    window=$(tail -n "$held" "$folder/ids" | head -n "$block" | tr '\n' ',')
    window=${window%,}
    last=$(tail -n 1 "$folder/ids")
}
ids "$folder/text" >"$folder/ids"
use_ids

# check_logits MODEL: the loss of the last evaluation of MODEL is that of the logits that `tessera generate` computes.
check_logits() {
    "$tessera" generate "$folder/$1" --ids "$window" --greedy --max-tokens 1 --json --logits "$block" >"$folder/logits" 2>"$folder/out" ||
        fail "there are no logits of $1"
    loss_of_logits "$folder/logits" >"$folder/loss"
    read -r by_logits rows <"$folder/loss"
    [ "$rows" = "$block" ] || fail "$1: logits of $rows tokens, not of $block"
    equal "$by_logits" "$(held_out)" || fail "$1: the loss is $(held_out), but $by_logits by the logits"
}

for model in stories qwen2 qwen3 mistral llama gpt2; do
    if [ "$model" != stories ]; then
        mkdir "$folder/$model"
        "$random_model" $model "$folder/$model" >"$folder/out" 2>&1 || fail "the model of $model cannot be written"
        cp "$folder/stories/tokenizer"* "$folder/$model"
    fi
    train $model --steps 0 || fail "$model is not evaluated"
    check_logits "$model"
    [ "$model" = stories ] && untrained=$by_logits
done

mkdir "$folder/saved"
train stories --steps 4 --save "$folder/saved/model.safetensors" --checkpoint "$folder/run" || fail "one rank does not train"
trained=$(held_out)
grep -c '"step"' "$folder/log" | grep -qx 4 || fail "there are not four steps"
equal "$untrained" "$trained" && fail "training changed nothing"
# The head is the embedding, of which the first and the last stage both have a copy.
train stories --steps 4 --ranks 2 --pipeline 2 || fail "two stages do not train"
equal "$trained" "$(held_out)" || fail "two stages end with a loss of $(held_out), one rank with $trained"
train stories --steps 4 --load "$folder/run" || fail "the checkpoint does not load"
train qwen2 --steps 4 --load "$folder/run" && fail "the checkpoint of another model was loaded"
grep -q 'has another model than the options describe: 5 blocks, .*, not 2 blocks, ' "$folder/out" || fail "the error does not name the models"

train saved --steps 0 || fail "the saved model does not load"
equal "$trained" "$(held_out)" || fail "the saved model has a loss of $(held_out), not $trained"
grep -q '"max_position_embeddings": 512' "$folder/saved/config.json" || fail "config.json does not have the model's context"
"$tessera" generate "$folder/saved" -p 'Once upon' --greedy --max-tokens 8 >"$folder/out" 2>&1 || fail "the saved model does not generate"
grep -q '^Once upon a time' "$folder/out" || fail "the saved model has forgotten how stories begin"
# A save into the model's own folder keeps the tokenizer.
train saved --steps 0 --save "$folder/saved/model.safetensors" || fail "the model is not saved into its own folder"
cmp "$folder/stories/tokenizer.model" "$folder/saved/tokenizer.model" || fail "the tokenizer has changed"

# In GPT-2 all linear layers have biases. A bias of attention's output or of the MLP's is added once, whatever the grid. There are more
# learned positions than a window has tokens.
mkdir "$folder/gpt2-saved"
train gpt2 --steps 4 --learning-rate 0.01 --recompute --save "$folder/gpt2-saved/model.safetensors" || fail "gpt2: one rank does not train"
trained=$(held_out)
check_logits gpt2-saved
for grid in '--grid 1x2' '--grid 2x1 --strategy full' '--pipeline 2 --batch 2 --accumulate 2'; do
    # shellcheck disable=SC2086 # options
    train gpt2 --steps 4 --learning-rate 0.01 --ranks 2 $grid || fail "gpt2: $grid does not train"
    equal "$trained" "$(held_out)" 1e-5 || fail "gpt2: $grid ends with a loss of $(held_out), one rank with $trained"
done
train gpt2-saved --steps 0 || fail "gpt2: the saved model does not load"
equal "$trained" "$(held_out)" || fail "gpt2: the saved model has a loss of $(held_out), not $trained"

# Two documents: each is a text of its own, which begins with token 1, and token 2 ends it. Both are in the window.
head -c 1400 "$folder/text" >"$folder/first"
tail -c 100 "$folder/text" >"$folder/second"
{
    cat "$folder/first"
    printf '<|endoftext|>'
    cat "$folder/second"
} >"$folder/documents"
for document in first second; do
    ids "$folder/$document"
    echo 2
done >"$folder/ids"
use_ids
case ",$window,$last," in
*,2,1,*,2,) ;;
*) fail "the held-out part does not have the end of both documents: $window,$last" ;;
esac
train stories --steps 0 --text "$folder/documents" --separator '<|endoftext|>' || fail "documents are not read"
check_logits stories

# The biases of a new model are 0, so it begins with the loss of a model without biases. --config and --init read the biases that it saves.
small() {
    timeout 240 "$gpt" --text "$folder/text" --batch 4 --block 16 --eval-batches 2 --learning-rate 0.01 --warmup 0 --characters 0 --log "$folder/log" \
        "$@" >"$folder/out" 2>&1
}
mkdir "$folder/new"
small --width 32 --layers 2 --steps 0 || fail "a model without biases is not evaluated"
untrained=$(held_out)
small --width 32 --layers 2 --steps 0 --bias || fail "a model with biases is not evaluated"
equal "$untrained" "$(held_out)" || fail "a new model with biases has a loss of $(held_out), one without has $untrained"
small --width 32 --layers 2 --steps 6 --bias --save "$folder/new/model.safetensors" || fail "a model with biases does not train"
trained=$(held_out)
small --steps 0 --config "$folder/new/config.json" --init "$folder/new/model.safetensors" || fail "a model with biases does not load"
equal "$trained" "$(held_out)" || fail "a model with biases has a loss of $(held_out) after loading, not $trained"
sed -i 's/"model_type"/"bias": false, "model_type"/' "$folder/new/config.json"
small --steps 0 --config "$folder/new/config.json" --init "$folder/new/model.safetensors" || fail "a model does not load without its biases"
equal "$trained" "$(held_out)" && fail "the biases did not learn anything"
exit 0
