#!/bin/sh
# train_parts.sh TESSERA TEXT: four ranks on two hosts, each host with a folder of its own, save a training in parts. Other numbers of ranks on
# other hosts resume it with the same losses. Errors name a missing part, and a part of another model.
set -u
tessera=$(realpath "$1") # ranks run in other folders
text=$(realpath "$2")
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
echo $$ >"$FOLDER/pid.$RANK"
cd "$FOLDER/$host" && TESSERA_NODE=$host exec "$@"
END

# train HOSTS OPTION...: trains a small model, with a rank for each letter of HOSTS.
train() {
    hosts=$1
    shift
    HOSTS=$hosts FOLDER=$folder timeout 240 "$tessera" launch -n ${#hosts} -- sh "$folder/rank" "$tessera" train --data "$text" --held-out 0 \
        --layers 2 --heads 2 --kv-heads 1 --width 32 --context 16 --batch 12 "$@" >"$folder/out" 2>&1
}
# The losses of steps 6 to 11 are those of the undisturbed training.
same_losses() { # LOG
    awk -v limit=1e-4 '
        function value(name,    at) { at = index($0, "\"" name "\": "); return substr($0, at + length(name) + 4) + 0 }
        NR == FNR { loss[value("step")] = value("loss"); next }
        { s = value("step"); d = loss[s] - value("loss"); if (d < 0) d = -d; if (s < 6 || d > limit * loss[s]) exit bad = 1; seen++ }
        END { exit bad || seen != 6 }' "$folder/all.log" "$1"
}

train a --steps 12 --warmup 1 --log "$folder/all.log" || fail "the undisturbed training failed"
train aabb --data-parallel 2 --fsdp --steps 6 --decay 11 --warmup 1 --checkpoint model --checkpoint-every 3 --parts || fail "saving in parts failed"
"$tessera" checkpoint verify "$folder/a/model" "$folder/b/model" >"$folder/out" 2>&1 || fail "the checkpoint is incomplete"
set -- "$folder"/?/model-*
[ $# = 4 ] || fail "there are $# files, not the four parts: $*"

# resume HOSTS OPTION...: resumes the training whose options the checkpoint has saved.
resume() {
    hosts=$1
    shift
    HOSTS=$hosts FOLDER=$folder timeout 240 "$tessera" launch -n ${#hosts} -- sh "$folder/rank" "$tessera" train --resume model --checkpoint other --parts \
        "$@" >"$folder/out" 2>&1
}
resume bca --strategy weighted --data-parallel 3 --steps 12 --log "$folder/three.log" || fail "three ranks cannot go on"
same_losses "$folder/three.log" || fail "three ranks have other losses"
resume ab --stages 2 --steps 12 --log "$folder/stages.log" || fail "stages cannot go on"
same_losses "$folder/stages.log" || fail "stages have other losses"
resume a --steps 12 && fail "one rank went on without the parts of the other host"
grep -q 'part 3 of 4 of checkpoint ' "$folder/out" || fail "it does not name the missing part"
resume ab --data-parallel 2 --batch 1 && fail "a batch was accepted that does not divide over the ranks"
grep -q 'a micro-batch of 1 row has fewer than the 2 data-parallel ranks' "$folder/out" || fail "it does not say that the batch does not divide"
# An elastic job: its ranks know the options together, and a process that joins reads them from the part of its host.
resume aa --elastic --steps 12 --log "$folder/elastic.log" && fail "two ranks went on without the parts of the other host"
HOSTS=ab FOLDER=$folder timeout 400 "$tessera" launch -n 2 --respawn 1 -- sh "$folder/rank" "$tessera" train --resume model --checkpoint other --parts --elastic --fsdp \
    --steps 200 --timeout 20 --log "$folder/elastic.log" >"$folder/out" 2>&1 &
job=$!
for _ in $(seq 1200); do
    grep -q '"step": 8,' "$folder/elastic.log" 2>/dev/null && break
    sleep 0.05
done
kill -KILL "$(cat "$folder/pid.1")"
wait $job || fail "an elastic training cannot go on"
grep -q 'going on with 2 ranks' "$folder/out" || fail "no process has joined"
cp "$folder/b/"* "$folder/a"
resume a --steps 12 --log "$folder/one.log" || fail "one rank cannot go on"
same_losses "$folder/one.log" || fail "one rank has other losses"
resume a --steps 12 --heads 4 && fail "another model was loaded"
grep -q 'train: --heads is 4, but the training in model was begun with 2' "$folder/out" ||
    fail "it does not say that the model is another one"
exit 0
