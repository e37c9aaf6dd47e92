#!/bin/sh
# gpt_pipeline.sh GPT TESSERA: a training whose blocks are divided over stages has the losses of one process, also with dropout. It
# evaluates and writes a text as one process does, and resumes checkpoints of other grids. Stages save the file that one process saves. If a
# rank is killed or stopped, the ranks of the other stages end with a sentence.
set -u
gpt=$1
tessera=$2
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

fail() {
    echo "$1"
    cat "$folder/out"
    exit 1
}
# train RANKS OPTION...: trains a small model.
train() {
    ranks=$1
    shift
    GPT_PIPELINE=$folder timeout 120 "$tessera" launch -n "$ranks" -- "$gpt" --layers 3 --heads 2 --width 32 --block 16 --batch 4 --accumulate 2 \
        --decay 12 --warmup 1 --eval-every 6 --eval-batches 10 --prompt KING --characters 24 --temperature 0 "$@" >"$folder/out" 2>&1
}
# same LOG FROM: the losses from step FROM on, and the evaluations, are those of one process.
same() {
    awk -v from="$2" '
        function value(name,    at) { at = index($0, "\"" name "\": "); return substr($0, at + length(name) + 4) + 0 }
        function key() { return /"evaluated"/ ? "e" value("evaluated") : "s" value("step") }
        function loss() { return /"evaluated"/ ? value("held_out_loss") : value("loss") }
        NR == FNR { want[key()] = loss(); next }
        { k = key(); d = loss() - want[k]; if (!(k in want) || d > 1e-4 * want[k] || -d > 1e-4 * want[k]) exit bad = 1
          if (substr(k, 2) + 0 < from) exit bad = 1; seen++ }
        END { exit bad || seen < 7 }' "$folder/one.log" "$1"
}
text() {
    sed -n 's/^\(\[0\] \)\{0,1\}\(KING.*\)/\2/p' "$folder/out"
}

for style in gpt2 llama; do
    # Data-parallel ranks use other dropout masks than one process, so dropout is off with them.
    dropout=0 grid='--grid 2x1 --strategy full --blocks rates'
    [ "$style" = llama ] && dropout=0.2 grid='--grid 1x2 --tensor-rates 3,1 --blocks 2,1'
    set -- --style "$style" --dropout "$dropout"
    train 1 "$@" --steps 6 --checkpoint "$folder/half" || fail "$style: one process failed"
    train 1 "$@" --steps 12 --log "$folder/one.log" || fail "$style: one process failed"
    text >"$folder/text"
    [ -s "$folder/text" ] || fail "$style: there is no text"
    train 2 "$@" --steps 12 --pipeline 2 --log "$folder/log" --checkpoint "$folder/end" --save "$folder/model.safetensors" ||
        fail "$style: two stages failed"
    same "$folder/log" 0 || fail "$style: two stages have other losses than one process"
    text | cmp - "$folder/text" || fail "$style: two stages write another text"

    # Stages resume the checkpoint of one process, and one process resumes the checkpoint of stages.
    # shellcheck disable=SC2086 # options
    train 4 "$@" --steps 12 --pipeline 2 $grid --load "$folder/half" --log "$folder/log" || fail "$style: four ranks cannot go on"
    same "$folder/log" 6 || fail "$style: four ranks go on with other losses"
    train 1 "$@" --steps 12 --load "$folder/end" || fail "$style: one process cannot load the checkpoint of stages"
    text | cmp - "$folder/text" || fail "$style: the checkpoint of stages gives another text"
    "$tessera" generate "$folder" --prompt KING --greedy --max-tokens 10 >"$folder/out" || fail "$style: tessera generate cannot load the model"
    text | cut -c 1-12 >"$folder/short"
    cut -c 1-12 "$folder/text" | cmp - "$folder/short" || fail "$style: tessera generate writes another text"
done
# The file that several stages save is that of a training in one process. (For GPT-2 the tensors are in another order.)
mkdir "$folder/a" "$folder/b"
train 1 "$@" --steps 6 --load "$folder/half" --save "$folder/a/model.safetensors" || fail "one process cannot save"
train 3 "$@" --steps 6 --load "$folder/half" --save "$folder/b/model.safetensors" --pipeline 3 || fail "three stages cannot save"
cmp "$folder/a/model.safetensors" "$folder/b/model.safetensors" || fail "the model that stages save is another file"

# If a rank of the last stage is killed, the ranks of the other stages end with a sentence.
train 3 --steps 100000 --pipeline 3 --eval-every 0 --log "$folder/log" &
job=$!
for _ in $(seq 400); do
    grep -q '"step": 5,' "$folder/log" 2>/dev/null && break
    sleep 0.05
done
victim=$(grep -lzxF "GPT_PIPELINE=$folder" /proc/[0-9]*/environ 2>/dev/null | while read -r environ; do
    grep -qzx RANK=2 "$environ" && basename "$(dirname "$environ")" && break
done)
[ -n "$victim" ] || fail "there is no rank 2 to kill"
kill -KILL "$victim"
wait $job && fail "the job ended well although a rank was killed"
grep -Eq 'gpt: rank [01]: .*(stage [01] (receiving from|sending to) stage|rank [0-9])' "$folder/out" || fail "no rank says what happened"

# A stage is stopped in the first step. The other stage cannot distinguish this from a stage that compiles kernels for longer than
# the timeout, so its sentence must name this possible reason.
GPT_FAIL=1:0:stop train 2 --steps 2 --pipeline 2 --eval-every 0 --timeout 10 && fail "the job ended well although a rank was stopped"
grep -q 'gpt: rank 0: .*: not done after 10 s; no answer from rank 1 at present; in the first step ranks compile their kernels, which may need a longer --timeout' \
    "$folder/out" || fail "it does not say what may take long in the first step"

train 3 --steps 1 --pipeline 2 && fail "three ranks were divided over two stages"
grep -q "a grid of 1x1 in each of 2 stages has 2 ranks, but there are 3" "$folder/out" || fail "it does not say that the grid does not fit"
exit 0
