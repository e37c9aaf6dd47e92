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
# equal A B: the two losses differ by at most 2e-6 of their values.
equal() {
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a > 0 && b > 0 && d <= 2e-6 * a && -d <= 2e-6 * a) }'
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
"$tessera" tokenize "$folder/stories" <"$folder/text" | sed -n '/"ids"/,/\]/s/^ *\([0-9]\{1,\}\),\{0,1\}$/\1/p' >"$folder/ids"
count=$(wc -l <"$folder/ids")
held=$(((count + 9) / 10))
block=$((held - 1))
window=$(tail -n "$held" "$folder/ids" | head -n "$block" | tr '\n' ',')
window=${window%,}
last=$(tail -n 1 "$folder/ids")

for model in stories qwen2 qwen3 mistral; do
    if [ "$model" != stories ]; then
        mkdir "$folder/$model"
        "$random_model" $model "$folder/$model" >"$folder/out" 2>&1 || fail "the model of $model cannot be written"
        cp "$folder/stories/tokenizer"* "$folder/$model"
    fi
    train $model --steps 0 || fail "$model is not evaluated"
    "$tessera" generate "$folder/$model" --ids "$window" --greedy --max-tokens 1 --json --logits "$block" >"$folder/logits" 2>"$folder/out" ||
        fail "there are no logits of $model"
    # shellcheck disable=SC2046 # two words
    set -- $(loss_of_logits "$folder/logits")
    [ "$2" = "$block" ] || fail "$model: logits of $2 tokens, not of $block"
    equal "$1" "$(held_out)" || fail "$model: the loss is $(held_out), but $1 by the logits"
    [ "$model" = stories ] && untrained=$1
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
grep -q 'has a model of llama, 5 blocks' "$folder/out" || fail "the error does not name the models"

train saved --steps 0 || fail "the saved model does not load"
equal "$trained" "$(held_out)" || fail "the saved model has a loss of $(held_out), not $trained"
grep -q '"max_position_embeddings": 512' "$folder/saved/config.json" || fail "config.json does not have the model's context"
"$tessera" generate "$folder/saved" -p 'Once upon' --greedy --max-tokens 8 >"$folder/out" 2>&1 || fail "the saved model does not generate"
grep -q '^Once upon a time' "$folder/out" || fail "the saved model has forgotten how stories begin"
# A save into the model's own folder keeps the tokenizer.
train saved --steps 0 --save "$folder/saved/model.safetensors" || fail "the model is not saved into its own folder"
cmp "$folder/stories/tokenizer.model" "$folder/saved/tokenizer.model" || fail "the tokenizer has changed"
exit 0
