#!/bin/sh
# train_stages.sh TESSERA TEXT: a training whose blocks are divided over stages has the losses of one process, also with dropout, and resumes
# checkpoints of other grids. Stages save the files that one process saves. If a rank is killed, the ranks of the other stages end with a
# sentence.
set -u
tessera=$1
text=$2
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

fail() {
    echo "$1"
    cat "$folder/out"
    exit 1
}
start() { # RANKS OPTION...
    ranks=$1
    shift
    # shellcheck disable=SC2016 # the shell that launch starts expands them
    timeout 120 "$tessera" launch -n "$ranks" -- sh -c 'echo $$ >"$1/pid.$RANK" && shift && exec "$@"' sh "$folder" "$tessera" train "$@" >"$folder/out" 2>&1
}
# train RANKS OPTION...: trains a small model.
train() {
    ranks=$1
    shift
    start "$ranks" --data "$text" --layers 3 --heads 2 --width 32 --context 16 --batch 8 --accumulate 2 --decay 11 --warmup 1 --evaluate-every 6 \
        --evaluate-rows 8 "$@"
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

# Data-parallel ranks use other dropout masks than one process, so dropout is off with them.
set -- --style gpt2 --dropout 0
train 1 "$@" --steps 12 --log "$folder/one.log" || fail "gpt2: one process failed"
train 4 "$@" --steps 12 --stages 2 --data-parallel 2 --fsdp --rates measured --log "$folder/log" || fail "gpt2: four ranks failed"
same "$folder/log" 0 || fail "gpt2: four ranks have other losses than one process"

set -- --style llama --dropout 0.2
rm "$folder/log" "$folder/one.log" # which would be continued
train 1 "$@" --steps 6 --checkpoint "$folder/half" || fail "llama: one process failed"
train 1 "$@" --steps 12 --log "$folder/one.log" || fail "llama: one process failed"
train 2 "$@" --steps 12 --stages 2 --log "$folder/log" --checkpoint "$folder/end" || fail "llama: two stages failed"
same "$folder/log" 0 || fail "llama: two stages have other losses than one process"
# Stages resume the checkpoint of one process, and one process resumes the checkpoint of stages.
cp "$folder/half" "$folder/copy"
rm "$folder/log"
start 4 --resume "$folder/copy" --steps 12 --stages 2 --rates 3,1,3,1 --stage-layers 2,1 --log "$folder/log" || fail "llama: four ranks cannot go on"
same "$folder/log" 6 || fail "llama: four ranks go on with other losses"
start 1 --resume "$folder/end" --steps 13 --checkpoint "$folder/last" || fail "llama: one process cannot load the checkpoint of stages"
# The files that several stages save are those of a training in one process. (For GPT-2 the tensors are in another order.)
for ranks in 1 3; do
    cp "$folder/half" "$folder/copy"
    start $ranks --resume "$folder/copy" --steps 6 --stages $ranks --output "$folder/saved.$ranks" || fail "$ranks stages cannot save"
done
for file in config.json model.safetensors; do
    cmp "$folder/saved.1/$file" "$folder/saved.3/$file" || fail "stages save another $file"
done
"$tessera" generate "$folder/saved.3" --prompt KING --greedy --max-tokens 10 >"$folder/out" || fail "tessera generate cannot load the model"

# If a rank of the last stage is killed, the ranks of the other stages end with a sentence.
train 3 --steps 100000 --stages 3 --held-out 0 --log "$folder/log" &
job=$!
for _ in $(seq 1200); do
    grep -q '"step": 5,' "$folder/log" 2>/dev/null && break
    sleep 0.05
done
kill -KILL "$(cat "$folder/pid.2")"
wait $job && fail "the job ended well although a rank was killed"
grep -Eq 'tessera: train: .*(stage [01] (receiving from|sending to) stage|rank [0-9])' "$folder/out" || fail "no rank says what happened"

train 3 --steps 1 --stages 2 && fail "three ranks were divided over two stages"
grep -q -- "--stages 2 and --data-parallel 1 do not divide 3 ranks" "$folder/out" || fail "it does not say that the grid does not fit"
exit 0
