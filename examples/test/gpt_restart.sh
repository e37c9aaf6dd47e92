#!/bin/sh
# gpt_restart.sh GPT TESSERA: an interrupted training, and one of which a rank is killed, resume from their checkpoints, also with another
# grid, and reach the losses of an undisturbed training. The saved model loads, and a text is the same for any number of ranks. Checkpoints
# of another model or text are refused. Micro-batches have the losses of one batch.
set -u
gpt=$1
tessera=$2
tinyshakespeare=$(cd "$(dirname "$0")/../data" && pwd)/tinyshakespeare.txt
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
    GPT_RESTART=$folder timeout 240 "$tessera" launch -n "$ranks" -- "$gpt" --style llama --layers 2 --heads 2 --kv-heads 1 --width 32 --block 16 \
        --batch 4 --eval-every 0 --characters 0 "$@" >"$folder/out" 2>&1
}
# Prints the process id of rank 1 of the job that has GPT_RESTART in its environment.
rank_1() {
    grep -lzxF "GPT_RESTART=$folder" /proc/[0-9]*/environ 2>/dev/null | while read -r environ; do
        if grep -qzx RANK=1 "$environ"; then
            basename "$(dirname "$environ")"
            break
        fi
    done
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

train 2 --grid 2x1 --strategy full --steps 120 --log "$folder/undisturbed.log" --save "$folder/model.safetensors" ||
    fail "the undisturbed training failed"

# After an interrupt, the exit status says so, and a sentence names the checkpoint. The training is slow, because finding a rank takes a busy
# machine some time.
(
    export TESSERA_SLOWDOWN=10
    train 2 --grid 2x1 --steps 120 --checkpoint "$folder/interrupted" --log "$folder/log"
) &
job=$!
reaches "$folder/log" 5 || fail "the training did not reach step 5"
victim=$(rank_1)
[ -n "$victim" ] || fail "there is no rank 1 to interrupt"
kill -INT "$victim"
wait $job
[ $? = 130 ] || fail "an interrupted training did not end with status 130"
grep -q "Stopped. Go on with: gpt --load $folder/interrupted --checkpoint $folder/interrupted, on any grid" "$folder/out" || fail "it does not say how to go on"
step=$(($(grep -c '"step"' "$folder/log")))
[ "$step" -lt 120 ] || fail "the training was over before it was interrupted"
# The checkpoint says what the model, the text and the training are.
resume() { # RANKS OPTION...
    ranks=$1
    shift
    timeout 240 "$tessera" launch -n "$ranks" -- env TESSERA_RESTART="$restart" "$gpt" --eval-every 0 --characters 0 "$@" >"$folder/out" 2>&1
}
restart=
resume 2 --grid 1x2 --load "$folder/interrupted" --log "$folder/resumed.log" || fail "another grid could not go on"
same_losses "$folder/resumed.log" "$step" || fail "the resumed training has other losses"
grep -q "^\(\[0\] \)\?loaded    $folder/interrupted, after step $step$" "$folder/out" || fail "it does not say where it goes on"

# An interrupt during a write to a pipe that is full loses no line. The 64 KiB of zeros fill the pipe, so gpt waits in its first write until
# tail reads. The signal is sent again and again, because it is not visible everywhere whether gpt has got there.
mkfifo "$folder/pipe"
(
    head -c 65536 /dev/zero
    exec "$gpt" --layers 1 --heads 1 --width 16 --block 16 --batch 1 --steps 1000
) >"$folder/pipe" 2>/dev/null &
victim=$!
exec 3<"$folder/pipe"
for _ in $(seq 100); do
    grep -q '^SigCgt:.*[2367abef]$' "/proc/$victim/status" && break # gpt has installed its handler of SIGINT
    sleep 0.1
done
for _ in $(seq 20); do
    kill -INT "$victim"
    grep -q pipe "/proc/$victim/wchan" && break
    sleep 0.1
done
kill -INT "$victim"
tail -c +65537 <&3 >"$folder/out"
exec 3<&-
wait "$victim"
grep -q '^device ' "$folder/out" || fail "an interrupt loses the first line"
grep -q '^Stopped' "$folder/out" || fail "the training was not interrupted"

# A training of which a rank is killed resumes from its last checkpoint.
train 2 --grid 2x1 --strategy full --steps 120 --checkpoint "$folder/killed" --checkpoint-every 10 --log "$folder/killed.log" &
job=$!
reaches "$folder/killed.log" 21 || fail "the training did not reach step 21"
victim=$(rank_1)
[ -n "$victim" ] || fail "there is no rank 1 to kill"
kill -KILL "$victim"
wait $job && fail "the job succeeded although a rank was killed"
grep -q 'rank 1' "$folder/out" || fail "the error does not name rank 1"
train 1 --steps 120 --load "$folder/killed" --log "$folder/resumed.log" || fail "one rank could not go on"
same_losses "$folder/resumed.log" 10 || fail "the training resumed after the kill has other losses"
# The launcher sets TESSERA_RESTART when it starts an elastic job again: also then, the checkpoint says what the training is. It is overwritten at the end.
cp "$folder/killed" "$folder/restarted"
cp "$folder/killed.log" "$folder/restarted.log"
restart=10
resume 2 --elastic --checkpoint "$folder/restarted" --log "$folder/restarted.log" || fail "an elastic job cannot start again"
restart=
same_losses "$folder/restarted.log" 0 || fail "the elastic job that started again has other losses"
resume 1 --load "$folder/restarted" || fail "a finished training does not load"
grep -q "$folder/restarted has made all of its 120 steps; --steps N makes more" "$folder/out" || fail "it does not say that nothing is left"
resume 2 --elastic --load "$folder/killed" --log "$folder/resumed.log" --checkpoint "$folder/second" || fail "an elastic job cannot load a checkpoint"
same_losses "$folder/resumed.log" 10 || fail "the elastic job has other losses"

# An error ends a training of one rank. Such a rank reads the loss of a step only after the next step has begun; the last complete step is
# in the log nevertheless.
GPT_FAIL=0:3:explode train 1 --steps 6 && fail "the training accepted an unknown word in GPT_FAIL"
grep -qF "where HOW is kill, stop, error or join, not '0:3:explode'" "$folder/out" || fail "it does not say which words GPT_FAIL takes"
GPT_FAIL=0:3:error train 1 --steps 6 --log "$folder/failed.log" && fail "the training succeeded although a step failed"
grep -q 'gpt: rank 0: step 3 fails, as GPT_FAIL asks' "$folder/out" || fail "it does not say why the training failed"
[ "$(grep -c '"step"' "$folder/failed.log")" = 3 ] || fail "the log has not the three steps that were made"

# The saved model can be loaded: it has the same held-out loss on any number of ranks, and gives the same text of the most likely
# characters.
for ranks in 1 2; do
    train $ranks --init "$folder/model.safetensors" --steps 0 --eval-every 1 --eval-batches 2 --characters 40 --temperature 0 --prompt 'KING' ||
        fail "$ranks ranks could not load the model"
    sed -n 's/^\(\[0\] \)\{0,1\}step 0 .*held out \([0-9.]*\).*/\2/p' "$folder/out" >"$folder/loss.$ranks"
    sed -n 's/^\(\[0\] \)\{0,1\}\(KING.*\)/\2/p' "$folder/out" >"$folder/text.$ranks"
    if [ ! -s "$folder/loss.$ranks" ] || [ ! -s "$folder/text.$ranks" ]; then
        fail "$ranks ranks reported no loss or text"
    fi
done
cmp "$folder/loss.1" "$folder/loss.2" || fail "one and two ranks have different losses"
cmp "$folder/text.1" "$folder/text.2" || fail "one and two ranks write different texts"
"$tessera" generate "$folder" --prompt 'KING' --greedy --max-tokens 12 >"$folder/generated" || fail "tessera generate cannot load the model"
sed -n 's/^\(KING.*\)/\1/p' "$folder/generated" >"$folder/text.3"
cut -c 1-16 "$folder/text.1" | cmp - "$folder/text.3" || fail "tessera generate writes another text"
grep -q '"model_type": "llama"' "$folder/config.json" || fail "there is no config.json"
grep -q '"torch_dtype": "float32"' "$folder/config.json" || fail "config.json does not name f32"

# A checkpoint of another model or text is refused.
refuses() { # WORDS OPTION...
    words=$1
    shift
    train 1 --load "$folder/killed" --steps 120 "$@" && fail "a checkpoint was loaded although $words"
    grep -qe "$words" "$folder/out" || fail "it does not say: $words"
}
refuses '--heads 4, but the model of .*killed has --heads 2' --heads 4
refuses '--dtype bf16, but the model of .*killed has --dtype f32' --dtype bf16
head -c 2000 "$tinyshakespeare" | tr A-Za-z B-ZAb-za >"$folder/text"
refuses 'has another model than the options describe: 65 characters, not [0-9]* characters$' --text "$folder/text"
tr 'Z' '~' <"$tinyshakespeare" >"$folder/text"
refuses 'is of a text with other characters' --text "$folder/text"

# With bf16 and micro-batches, the losses are those of one batch, on any grid, also across the end of an epoch and with dropout.
train 1 --steps 1 --dtype bf16 --save "$folder/model.safetensors" || fail "bf16 failed"
grep -q '"torch_dtype": "bfloat16"' "$folder/config.json" || fail "config.json does not name bf16"
head -c 325 "$tinyshakespeare" >"$folder/text" # so short that an epoch is 34 batches of 8 windows and 4 more windows
set -- --text "$folder/text" --dropout 0.2 --steps 38
train 1 "$@" --batch 8 --log "$folder/undisturbed.log" || fail "a batch of 8 failed"
train 1 "$@" --batch 4 --accumulate 2 --log "$folder/resumed.log" || fail "micro-batches failed"
same_losses "$folder/resumed.log" 0 || fail "two micro-batches of 4 differ from a batch of 8"
train 1 "$@" --dropout 0 --batch 8 --log "$folder/undisturbed.log" || fail "a batch of 8 failed"
train 2 "$@" --dropout 0 --grid 2x1 --strategy full --batch 4 --accumulate 2 --log "$folder/resumed.log" || fail "micro-batches with FSDP failed"
same_losses "$folder/resumed.log" 0 || fail "two micro-batches of 4 with FSDP differ from a batch of 8"
