#!/bin/sh
# train_model.sh TESSERA RANDOM_MODEL GGUF TEXT: tessera train MODEL continues the training of given models. Its loss before the first step is
# that of the logits that `tessera generate` computes, for each family. Several ranks get the losses of one. What it saves gives the last loss
# again, and generates text.
set -u
tessera=$(realpath "$1")
random_model=$2
gguf=$3
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
head -c 1500 "$4" >"$folder/text"

fail() {
    echo "$1"
    cat "$folder/out"
    exit 1
}

# train RANKS MODEL OPTION...: trains with rows that fill the held-out part, so that there is only one to evaluate.
train() {
    ranks=$1
    model=$2
    shift 2
    timeout 240 "$tessera" launch -n "$ranks" -- "$tessera" train "$folder/$model" --data "$folder/text" --context "$block" --batch 4 \
        --learning-rate 0.001 --warmup 0 --log "$folder/log" "$@" >"$folder/out" 2>&1
}
# held_out first|last: prints the held-out loss before the first step, or after the last.
held_out() {
    sed -n 's/.*"held_out_loss": \([0-9.]*\).*/\1/p' "$folder/log" | if [ "$1" = first ]; then head -1; else tail -1; fi
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
    held=$(($(wc -l <"$folder/ids") / 10))
    block=$((held - 1))
    window=$(tail -n "$held" "$folder/ids" | head -n "$block" | tr '\n' ',')
    window=${window%,}
    last=$(tail -n 1 "$folder/ids")
}
ids "$folder/text" >"$folder/ids"
use_ids

# check_logits MODEL: the loss before the first step of MODEL is that of the logits that `tessera generate` computes.
check_logits() {
    "$tessera" generate "$folder/$1" --ids "$window" --greedy --max-tokens 1 --json --logits "$block" >"$folder/logits" 2>"$folder/out" ||
        fail "there are no logits of $1"
    loss_of_logits "$folder/logits" >"$folder/loss"
    read -r by_logits rows <"$folder/loss"
    [ "$rows" = "$block" ] || fail "$1: logits of $rows tokens, not of $block"
    equal "$by_logits" "$(held_out first)" || fail "$1: the loss is $(held_out first), but $by_logits by the logits"
}

for model in qwen3 mistral llama gpt2; do
    mkdir "$folder/$model"
    "$random_model" $model "$folder/$model" >"$folder/out" 2>&1 || fail "the model of $model cannot be written"
    cp "$folder/stories/tokenizer"* "$folder/$model"
    [ "$model" != gpt2 ] || continue # is trained below
    train 1 $model --steps 1 || fail "$model is not trained"
    check_logits "$model"
done

train 1 stories --steps 4 --output "$folder/saved" --checkpoint "$folder/run" || fail "one rank does not train"
check_logits stories
trained=$(held_out last)
equal "$(held_out first)" "$trained" && fail "training changed nothing"
# The head is the embedding, of which the first and the last stage both have a copy.
train 2 stories --steps 4 --stages 2 || fail "two stages do not train"
equal "$trained" "$(held_out last)" || fail "two stages end with a loss of $(held_out last), one rank with $trained"

train 1 saved --steps 1 || fail "the saved model does not load"
equal "$trained" "$(held_out first)" || fail "the saved model has a loss of $(held_out first), not $trained"
grep -q '"max_position_embeddings": 512' "$folder/saved/config.json" || fail "config.json does not have the model's context"
cmp "$folder/stories/tokenizer.model" "$folder/saved/tokenizer.model" || fail "the tokenizer has changed"
"$tessera" generate "$folder/saved" -p 'Once upon' --greedy --max-tokens 8 >"$folder/out" 2>&1 || fail "the saved model does not generate"
grep -q '^Once upon a time' "$folder/out" || fail "the saved model has forgotten how stories begin"

# In GPT-2 all linear layers have biases. A bias of attention's output or of the MLP's is added once, whatever the grid. There are more
# learned positions than a row has tokens.
train 1 gpt2 --steps 4 --learning-rate 0.01 --recompute --output "$folder/gpt2-saved" || fail "gpt2: one rank does not train"
check_logits gpt2
trained=$(held_out last)
for grid in '' '--data-parallel 2 --fsdp'; do
    # shellcheck disable=SC2086 # options
    train 2 gpt2 --steps 4 --learning-rate 0.01 $grid || fail "gpt2: $grid does not train"
    equal "$trained" "$(held_out last)" 1e-5 || fail "gpt2: $grid ends with a loss of $(held_out last), one rank with $trained"
done
train 1 gpt2-saved --steps 1 || fail "gpt2: the saved model does not load"
equal "$trained" "$(held_out first)" || fail "gpt2: the saved model has a loss of $(held_out first), not $trained"
check_logits gpt2-saved

# Two documents: each is a text of its own, which begins with token 1, and token 2 ends it. Both are in the row.
head -c 1400 "$folder/text" >"$folder/first"
tail -c 100 "$folder/text" >"$folder/second"
for document in first second; do
    ids "$folder/$document"
    echo 2
done >"$folder/ids"
{
    cat "$folder/first"
    printf '<|endoftext|>'
    cat "$folder/second"
} >"$folder/text"
use_ids
case ",$window,$last," in
*,2,1,*,2,) ;;
*) fail "the held-out part does not have the end of both documents: $window,$last" ;;
esac
train 1 stories --steps 1 --separator '<|endoftext|>' || fail "documents are not read"
check_logits stories

# The biases of a new model are 0, so it begins with the loss of a model without biases. --config and --init read the biases that it saves.
small() {
    timeout 240 "$tessera" train --data "$folder/text" --batch 4 --context 16 --learning-rate 0.01 --warmup 0 --log "$folder/log" "$@" >"$folder/out" 2>&1
}
small --style gpt2 --width 32 --layers 2 --steps 1 || fail "a model without biases is not trained"
untrained=$(held_out first)
small --style gpt2 --width 32 --layers 2 --steps 6 --bias --output "$folder/new" || fail "a model with biases does not train"
equal "$untrained" "$(held_out first)" || fail "a new model with biases has a loss of $(held_out first), one without has $untrained"
trained=$(held_out last)
small --steps 1 --config "$folder/new/config.json" --init "$folder/new/model.safetensors" || fail "a model with biases does not load"
equal "$trained" "$(held_out first)" || fail "a model with biases has a loss of $(held_out first) after loading, not $trained"
sed -i 's/"model_type"/"bias": false, "model_type"/' "$folder/new/config.json"
small --steps 1 --config "$folder/new/config.json" --init "$folder/new/model.safetensors" || fail "a model does not load without its biases"
equal "$trained" "$(held_out first)" && fail "the biases did not learn anything"
exit 0
