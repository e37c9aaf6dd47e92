#!/bin/sh
# gpt_elastic.sh TESSERA GPT [STEPS [VICTIM]]: one of four ranks ends in the middle of a step. The others repeat the step and continue, and
# a process that is started in place of the lost rank joins them. No step is lost or counted twice, and the losses are those of an
# undisturbed training within 1 %. The same holds if another rank ends while that process joins.
set -u
tessera=$1
gpt=$2
steps=${3:-14}
victim=${4:-1}
at=7
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

train() { # LOG
    # shellcheck disable=SC2086 # no option or three words
    timeout 300 "$tessera" launch -n 4 --respawn 2 -- "$gpt" --elastic --strategy full --layers 1 --heads 2 --width 32 --block 32 --batch 10 \
        $experts --steps "$steps" --eval-every 0 --characters 0 --timeout 20 --log "$1" >"$folder/out" 2>&1
}
fail() {
    echo "$1"
    cat "$folder/out" "$folder/disturbed"
    exit 1
}

experts="--experts 5 --experts-over data" # which three and four ranks divide unevenly
train "$folder/undisturbed" || fail "the undisturbed training has failed"
GPT_FAIL=$victim:$at:kill train "$folder/disturbed" || fail "the training has failed"

awk -v steps="$steps" -v at="$at" '
    { gsub(/[",{}:]/, " ") }
    $1 != "step" { next }
    NR == FNR { undisturbed[$2] = $4; next }
    $2 != made++ { print "step " $2 " follows step " made - 2; wrong = 1 }
    { difference = ($4 - undisturbed[$2]) / undisturbed[$2]; if (difference < 0) difference = -difference }
    difference > most { most = difference }
    # Three ranks continue after step 7. The new process may join before every fifth step: before step 10, later, or not at all.
    $8 != ($2 < at ? 4 : $2 < 10 || $8 == 3 ? 3 : 4) { print "step " $2 " has " $8 " ranks"; wrong = 1 }
    $8 != ranks { ranks = $8; seen = seen " " ranks }
    END {
        if (made != steps) { print made + 0 " steps instead of " steps; wrong = 1 }
        if (most > 0.01) { print "a loss differs by " 100 * most " %"; wrong = 1 }
        if (!wrong) printf "ranks:%s; losses within %.2g %%\n", seen, 100 * most
        exit wrong
    }' "$folder/undisturbed" "$folder/disturbed" || fail "the log is wrong"
grep 'going on' "$folder/out"

experts=
steps=200 # so many that the process joins before the last
GPT_FAIL=$victim:$at:kill,$((3 - victim)):$at:join train "$folder/disturbed" || fail "the training has failed with a rank lost during the join"
[ "$(grep -c '^{"step"' "$folder/disturbed")" = "$steps" ] || fail "there are not $steps steps"
[ "$(grep -c 'was ended by signal 9' "$folder/out")" = 2 ] || fail "not both ranks were killed"
grep '] gpt: ' "$folder/out" && fail "the process that joined has not gone on"
grep 'going on' "$folder/out"
