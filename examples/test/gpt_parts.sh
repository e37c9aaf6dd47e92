#!/bin/sh
# gpt_parts.sh GPT TESSERA: four ranks on two hosts, each host with a folder of its own, save a training in parts. Other numbers of ranks on
# other hosts resume it with the same losses. Errors name a missing part, and a part of another model.
set -u
gpt=$(realpath "$1") # ranks run in other folders
tessera=$(realpath "$2")
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/a" "$folder/b" "$folder/c"

fail() {
    echo "$1"
    cat "$folder/out"
    exit 1
}

# Each rank runs in the folder of its host. HOSTS has a letter for each rank, which is the name of its folder.
cat >"$folder/rank" <<'END'
host=$(printf %s "$HOSTS" | cut -c "$((RANK + 1))")
cd "$FOLDER/$host" && TESSERA_NODE=$host exec "$@"
END

# train HOSTS OPTION...: trains a small model, with a rank for each letter of HOSTS.
train() {
    hosts=$1
    shift
    HOSTS=$hosts FOLDER=$folder timeout 240 "$tessera" launch -n ${#hosts} -- sh "$folder/rank" "$gpt" --style llama --layers 2 --heads 2 \
        --kv-heads 1 --width 32 --block 16 --batch 12 --eval-every 0 --characters 0 "$@" >"$folder/out" 2>&1
}
# The losses of steps 6 to 11 are those of the undisturbed training.
same_losses() { # LOG
    awk -v limit=1e-4 '
        function value(name,    at) { at = index($0, "\"" name "\": "); return substr($0, at + length(name) + 4) + 0 }
        NR == FNR { loss[value("step")] = value("loss"); next }
        { s = value("step"); d = loss[s] - value("loss"); if (d < 0) d = -d; if (s < 6 || d > limit * loss[s]) exit bad = 1; seen++ }
        END { exit bad || seen != 6 }' "$folder/all.log" "$1"
}

train aabb --grid 2x2 --strategy full --steps 12 --log "$folder/all.log" || fail "the undisturbed training failed"
train aabb --grid 1x2 --context-parallel 2 --strategy full --steps 6 --decay 12 --checkpoint model --checkpoint-every 3 --parts || fail "saving in parts failed"
"$tessera" checkpoint verify "$folder/a/model" "$folder/b/model" >"$folder/out" 2>&1 || fail "the checkpoint is incomplete"
set -- "$folder"/?/model-*
[ $# = 4 ] || fail "there are $# files, not the four parts: $*"

# resume HOSTS OPTION...: resumes the training whose options the checkpoint has saved.
resume() {
    hosts=$1
    shift
    HOSTS=$hosts FOLDER=$folder timeout 240 "$tessera" launch -n ${#hosts} -- sh "$folder/rank" "$gpt" --load model --parts --eval-every 0 \
        --characters 0 "$@" >"$folder/out" 2>&1
}
resume bca --strategy weighted --grid 3x1 --steps 12 --log "$folder/three.log" || fail "three ranks cannot go on"
same_losses "$folder/three.log" || fail "three ranks have other losses"
train abba --context-parallel 2 --pipeline 2 --steps 12 --load model --parts --log "$folder/stages.log" || fail "stages cannot go on"
same_losses "$folder/stages.log" || fail "stages have other losses"
train a --steps 12 --load model --parts && fail "one rank went on without the parts of the other host"
grep -q 'part 3 of 4 of checkpoint ' "$folder/out" || fail "it does not name the missing part"
resume ab --grid 2x1 --batch 13 && fail "a batch was accepted that does not divide over the ranks"
grep -q 'a batch of 13 does not divide over 2 rows of the grid' "$folder/out" || fail "it does not say that the batch does not divide"
# An elastic job: its ranks know the options together, and a process that joins reads them from the part of its host.
resume aa --elastic --steps 12 --log "$folder/elastic.log" && fail "two ranks went on without the parts of the other host"
GPT_FAIL=1:8:kill HOSTS=ab FOLDER=$folder timeout 240 "$tessera" launch -n 2 --respawn 1 -- sh "$folder/rank" "$gpt" --load model --parts --elastic --strategy full \
    --steps 400 --eval-every 0 --characters 0 --timeout 20 --log "$folder/elastic.log" >"$folder/out" 2>&1 || fail "an elastic training cannot go on"
grep -q 'going on with 2 ranks' "$folder/out" || fail "no process has joined"
cp "$folder/b/"* "$folder/a"
train a --steps 12 --load model --parts --log "$folder/one.log" || fail "one rank cannot go on"
same_losses "$folder/one.log" || fail "one rank has other losses"
train a --steps 12 --load model --parts --heads 4 && fail "another model was loaded"
grep -q 'gpt: --heads 4, but the model of model has --heads 2' "$folder/out" ||
    fail "it does not say that the model is another one"
exit 0
