#!/bin/sh
# train_kills.sh TESSERA TEXT [KIND KILLS [GAP]]: ranks of an elastic training are killed at random times. The training must reach its last step with
# the losses of an undisturbed one within 1 %, from the replicas of the other ranks or from the checkpoint. KINDs of kills:
#     one      one rank each time
#     second   a second rank 5 to 250 ms after the first
#     two      two ranks at once
#     all      all ranks at once
# Without KIND, one kill of each kind but the first, with which the second begins, in one training. KILLS is how often a kind happens, with GAP seconds in between,
# or GAP to 2 GAP (1).
# TEST_KEEP=FOLDER keeps the output there. STEPS is the number of steps of the training, which should last longer than the kills.
set -u
tessera=$1
text=$2
kind=${3:-}
kills=${4:-2}
gap=${5:-1}
if [ -n "${TEST_KEEP-}" ]; then
    folder=$TEST_KEEP
    mkdir -p "$folder"
else
    folder=$(mktemp -d) || exit 1
    trap 'rm -rf "$folder"' EXIT
fi

train() { # NAME RANKS STEPS
    timeout 600 "$tessera" launch -n "$2" --respawn 100 -- "$tessera" train --elastic --fsdp --data "$text" --held-out 0 --layers 1 --heads 2 \
        --width 32 --context 32 --batch 20 --steps "$3" --timeout 20 --checkpoint "$folder/$1.safetensors" --checkpoint-every 10 \
        --log "$folder/$1.log" >"$folder/$1.out" 2>"$folder/$1.err"
}

# A random integer from 0 to $1 - 1.
random() {
    echo $(($(od -An -N4 -tu4 /dev/urandom) % $1))
}

milliseconds() {
    echo "$(($1 / 1000)).$(printf %03d $(($1 % 1000)))"
}

# Prints the processes of the launcher that run the program, in random order.
ranks() {
    # shellcheck disable=SC2013 # words, not lines
    for child in $(cat "/proc/$launcher/task/$launcher/children" 2>/dev/null); do
        read -r _ name state _ 2>/dev/null <"/proc/$child/stat" && [ "$name" = "($(basename "$tessera"))" ] && [ "$state" != Z ] &&
            echo "$(random 1000000) $child"
    done | sort -n | cut -d ' ' -f 2
}

# Waits until the training makes steps, at most 20 s. It may be over.
wait_for_steps() {
    tries=0
    made=0
    while [ "$tries" -lt 100 ] && kill -0 "$launcher" 2>/dev/null; do
        before=$made
        made=$({ wc -l <"$folder/disturbed.log"; } 2>/dev/null || echo 0)
        [ "$before" -gt 0 ] && [ "$made" -gt "$before" ] && return
        sleep 0.2
        tries=$((tries + 1))
    done
}

# Adds the number of kills to $done.
disturb() { # KIND KILLS
    kind=$1
    last=$((done + $2))
    while [ "$done" -lt "$last" ]; do
        sleep "$(milliseconds $((gap * 1000 + $(random $((gap * 1000 + 1))))))"
        # On a busy machine there may have been no step yet. Some of the kills happen all the same while the ranks start or join.
        [ "$(random 4)" = 0 ] || wait_for_steps
        kill -0 "$launcher" 2>/dev/null || return
        # shellcheck disable=SC2046 # one word for each process
        set -- $(ranks)
        [ $# -gt 0 ] || continue
        case $kind in
        one) kill -9 "$1" ;;
        second)
            kill -9 "$1"
            sleep "$(milliseconds $((5 + $(random 246))))"
            again=$(ranks | grep -v "^$1\$" | head -n 1)
            [ -n "$again" ] && kill -9 "$again"
            ;;
        two) kill -9 "$1" ${2:+"$2"} ;;
        all) kill -9 "$@" ;;
        esac 2>/dev/null
        done=$((done + 1))
    done
}

fail() {
    echo "$1"
    tail -n 40 "$folder/disturbed.out" "$folder/disturbed.err"
    exit 1
}

try() { # KILLS KIND...
    kills=$1
    shift
    done=0
    start=$(date +%s)
    train disturbed 4 "$steps" &
    training=$!
    # The launcher is the child of timeout(1), which is a child of the shell of train().
    launcher=
    while [ -z "$launcher" ]; do
        sleep 0.05
        kill -0 "$training" || fail "$*: the launcher does not start"
        shell=$(cat "/proc/$training/task/$training/children" 2>/dev/null)
        [ -n "$shell" ] && launcher=$(cat "/proc/${shell% }/task/${shell% }/children" 2>/dev/null)
        launcher=${launcher% }
    done
    for each in "$@"; do
        disturb "$each" "$kills"
    done
    wait "$training" || fail "$*: the training has failed with status $?"
    awk -v steps="$steps" '
        { gsub(/[",{}:]/, " ") }
        $1 != "step" { next }
        NR == FNR { undisturbed[$2] = $4; next }
        $2 != made++ { print "step " $2 " follows step " made - 2; wrong = 1 }
        { difference = ($4 - undisturbed[$2]) / undisturbed[$2]; if (difference < 0) difference = -difference }
        difference > most { most = difference }
        END {
            if (made != steps) { print made + 0 " steps instead of " steps; wrong = 1 }
            if (most > 0.01) { print "a loss differs by " 100 * most " %"; wrong = 1 }
            if (!wrong) printf "losses within %.2g %%; ", 100 * most
            exit wrong
        }' "$folder/undisturbed.log" "$folder/disturbed.log" || fail "$*: the log is wrong"
    echo "$*: $done of $((kills * $#)) kills of $(grep -c 'was ended by signal 9' "$folder/disturbed.err") ranks," \
        "$(grep -c ' joins as ' "$folder/disturbed.err") replaced, $(grep -c 'starting all' "$folder/disturbed.err") starts from the checkpoint," \
        "$(($(date +%s) - start)) s"
}

steps=${STEPS:-150}
train undisturbed 1 "$steps" || fail "the undisturbed training has failed"
if [ -n "$kind" ]; then
    try "$kills" "$kind"
else
    try 1 second two all
fi
