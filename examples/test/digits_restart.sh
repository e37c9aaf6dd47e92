#!/bin/sh
# digits_restart.sh DIGITS TESSERA: a rank is killed in the middle of the training. The job ends with an error that names the rank, the
# last checkpoint is complete, and resuming from it leads to the same file, bit for bit, as an uninterrupted training.
set -u
digits=$1
tessera=$2
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

fail() {
    echo "$1"
    cat "$folder/out"
    exit 1
}

# train GRID FILE OPTION...: trains with two ranks and saves the checkpoint FILE.
train() {
    grid=$1
    file=$2
    shift 2
    timeout 180 "$tessera" launch -n 2 -- "$digits" --grid "$grid" --strategy full --epochs 30 --save "$folder/$file" "$@" \
        >"$folder/out" 2>&1
}

# Prints the process id of rank 1 of the job that has DIGITS_RESTART in its environment.
rank_1() {
    for process in /proc/[0-9]*; do
        tr '\0' '\n' <"$process/environ" >"$folder/environ" 2>/dev/null || continue
        grep -qxF "DIGITS_RESTART=$folder" "$folder/environ" && grep -qx RANK=1 "$folder/environ" &&
            echo "${process#/proc/}" && return
    done
    return 1
}

train 2x1 undisturbed || fail "the undisturbed training failed"

DIGITS_RESTART=$folder "$tessera" launch -n 2 -- "$digits" --grid 2x1 --strategy full --epochs 30 --save "$folder/disturbed" --log "$folder/log" \
    >"$folder/out" 2>&1 &
job=$!
for _ in $(seq 1200); do
    grep -q '"epoch": 3,' "$folder/log" 2>/dev/null && break
    sleep 0.05
done
victim=$(rank_1) || fail "there is no rank 1 to kill"
kill -KILL "$victim"
wait $job && fail "the job succeeded although a rank was killed"
grep -q 'rank 1' "$folder/out" || fail "the error does not name rank 1"
grep -q '"epoch": 30,' "$folder/log" && fail "the training was over before the kill"

train 2x1 disturbed --load "$folder/disturbed" || fail "resuming from the checkpoint failed"
cmp "$folder/undisturbed" "$folder/disturbed" || fail "the resumed training gave a different file"

# A training on another grid resumes from the same checkpoint.
train 1x2 other --load "$folder/undisturbed" || fail "another grid could not load the checkpoint"
grep -q 'held-out images right' "$folder/out" || fail "another grid reported no accuracy"
