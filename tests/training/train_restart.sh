#!/bin/sh
# train_restart.sh TESSERA TEXT: a training of which a rank is killed resumes from its checkpoint, also with another grid and when a launcher
# starts an elastic job again, and reaches the losses of an undisturbed training. Micro-batches have the losses of one batch. A checkpoint of
# another text is refused.
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
    timeout 240 "$tessera" launch -n "$ranks" -- sh -c 'echo $$ >"$1/pid.$RANK" && shift && exec "$@"' sh "$folder" env TESSERA_RESTART="$restart" \
        "$tessera" train "$@" >"$folder/out" 2>&1
}
# train RANKS OPTION...: trains a small model.
train() {
    ranks=$1
    shift
    start "$ranks" --data "$text" --layers 2 --heads 2 --kv-heads 1 --width 32 --context 16 --batch 4 --held-out 0 "$@"
}
reaches() { # LOG STEP: waits until the log has this step
    for _ in $(seq 2400); do
        grep -q "\"step\": $2," "$1" 2>/dev/null && return
        sleep 0.05
    done
    return 1
}
# The losses from step FROM on are those of the undisturbed training.
same_losses() { # LOG FROM
    awk -v from="$2" -v limit=1e-4 '
        function value(name,    at) { at = index($0, "\"" name "\": "); return substr($0, at + length(name) + 4) + 0 }
        NR == FNR { loss[value("step")] = value("loss"); steps = FNR; next }
        { s = value("step"); if (s < from || !(s in loss)) exit bad = 1
          d = loss[s] - value("loss"); if (d < 0) d = -d; if (d > limit * loss[s]) exit bad = 1; last = s }
        END { exit bad || last != steps - 1 }' "$folder/undisturbed.log" "$1"
}

restart=
train 1 --steps 40 --log "$folder/undisturbed.log" || fail "the undisturbed training failed"
train 2 --data-parallel 2 --fsdp --steps 40 --checkpoint "$folder/killed" --checkpoint-every 5 --log "$folder/killed.log" &
job=$!
reaches "$folder/killed.log" 11 || fail "the training did not reach step 11"
kill -KILL "$(cat "$folder/pid.1")"
wait $job && fail "the job succeeded although a rank was killed"
grep -q 'rank 1' "$folder/out" || fail "the error does not name rank 1"
for name in alone restarted elastic; do
    cp "$folder/killed" "$folder/$name"
done
cp "$folder/killed.log" "$folder/restarted.log"
start 1 --resume "$folder/alone" --log "$folder/alone.log" || fail "one rank could not go on"
same_losses "$folder/alone.log" 5 || fail "the training resumed after the kill has other losses"
# The launcher sets TESSERA_RESTART when it starts an elastic job again, with the same command.
restart=10
train 2 --elastic --fsdp --steps 40 --checkpoint "$folder/restarted" --log "$folder/restarted.log" || fail "an elastic job cannot start again"
restart=
same_losses "$folder/restarted.log" 0 || fail "the elastic job that started again has other losses"
start 2 --elastic --resume "$folder/elastic" --log "$folder/elastic.log" || fail "an elastic job cannot load a checkpoint"
same_losses "$folder/elastic.log" 5 || fail "the elastic job has other losses"

# A checkpoint of a text with other characters is refused.
tr 'Z' '~' <"$text" >"$folder/text"
start 1 --resume "$folder/killed" --data "$folder/text" && fail "a checkpoint was loaded although the text has other characters"
grep -q 'the characters of the data are not those of the training in' "$folder/out" || fail "it does not say that the characters differ"

# Micro-batches have the losses of one batch, on any grid, also across the end of an epoch and with dropout.
head -c 325 "$text" >"$folder/text"
set -- --data "$folder/text" --steps 8
train 1 "$@" --batch 8 --dropout 0.2 --log "$folder/undisturbed.log" || fail "a batch of 8 failed"
train 1 "$@" --batch 8 --accumulate 2 --dropout 0.2 --log "$folder/resumed.log" || fail "micro-batches failed"
same_losses "$folder/resumed.log" 0 || fail "two micro-batches of 4 differ from a batch of 8"
train 1 "$@" --batch 8 --log "$folder/undisturbed.log" || fail "a batch of 8 failed"
train 2 "$@" --data-parallel 2 --fsdp --batch 8 --accumulate 2 --log "$folder/resumed.log" || fail "micro-batches with FSDP failed"
same_losses "$folder/resumed.log" 0 || fail "two micro-batches of 4 with FSDP differ from a batch of 8"
