#!/bin/sh
# train_kills.sh TESSERA TEXT [KIND KILLS [GAP]]: ranks of an elastic training are killed at random times. The training must reach its last step with
# the losses of an undisturbed one within 1 %, from the replicas of the other ranks or from the checkpoint. KINDs of kills:
#     one      one rank each time
#     second   a second rank 5 to 250 ms after the first
#     two      two ranks at once
#     all      all ranks at once
# Without KIND, a short run of each but the first, with which the second begins. KILLS is how often this happens, with GAP seconds in between, or GAP to 2 GAP (1).
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

train() { # NAME STEPS
    timeout 600 "$tessera" launch -n 4 --respawn 100 -- "$tessera" train --elastic --fsdp --data "$text" --held-out 0 --layers 1 --heads 2 \
        --width 32 --context 32 --batch 20 --steps "$2" --timeout 20 --checkpoint "$folder/$1.safetensors" --checkpoint-every 10 \
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

disturb() { # KIND KILLS
    done=0
    while [ "$done" -lt "$2" ]; do
        sleep "$(milliseconds $((gap * 1000 + $(random $((gap * 1000 + 1))))))"
        # On a busy machine there may have been no step yet. Some of the kills happen all the same while the ranks start or join.
        [ "$(random 4)" = 0 ] || wait_for_steps
        kill -0 "$launcher" 2>/dev/null || return
        # shellcheck disable=SC2046 # one word for each process
        set -- "$1" "$2" $(ranks)
        [ $# -gt 2 ] || continue
        case $1 in
        one) kill -9 "$3" ;;
        second)
            kill -9 "$3"
            sleep "$(milliseconds $((5 + $(random 246))))"
            again=$(ranks | grep -v "^$3\$" | head -n 1)
            [ -n "$again" ] && kill -9 "$again"
            ;;
        two) kill -9 "$3" ${4:+"$4"} ;;
        all)
            shift 2
            kill -9 "$@"
            set -- "$kind" "$kills"
            ;;
        esac 2>/dev/null
        set -- "$1" "$2"
        done=$((done + 1))
    done
}

fail() {
    echo "$1"
    tail -n 40 "$folder/disturbed.out" "$folder/disturbed.err"
    exit 1
}

try() { # KIND KILLS STEPS
    kind=$1
    kills=$2
    rm -f "$folder"/disturbed*
    start=$(date +%s)
    train disturbed "$3" &
    training=$!
    # The launcher is the child of timeout(1), which is a child of the shell of train().
    launcher=
    while [ -z "$launcher" ]; do
        sleep 0.05
        kill -0 "$training" || fail "$1: the launcher does not start"
        shell=$(cat "/proc/$training/task/$training/children" 2>/dev/null)
        [ -n "$shell" ] && launcher=$(cat "/proc/${shell% }/task/${shell% }/children" 2>/dev/null)
        launcher=${launcher% }
    done
    disturb "$1" "$2"
    wait "$training" || fail "$1: the training has failed with status $?"
    awk -v steps="$3" '
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
        }' "$folder/undisturbed.log" "$folder/disturbed.log" || fail "$1: the log is wrong"
    echo "$1: $done of $2 kills of $(grep -c 'was ended by signal 9' "$folder/disturbed.err") ranks," \
        "$(grep -c ' joins as ' "$folder/disturbed.err") replaced, $(grep -c 'starting all' "$folder/disturbed.err") starts from the checkpoint," \
        "$(($(date +%s) - start)) s"
}

steps=${STEPS:-150}
train undisturbed "$steps" || fail "the undisturbed training has failed"
if [ -n "$kind" ]; then
    try "$kind" "$kills" "$steps"
else
    for kind in second two all; do
        try "$kind" 2 "$steps"
    done
fi
