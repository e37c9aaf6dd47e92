#!/bin/sh
# train.sh PROGRAM TOOL RANKS STEPS: the program trains as one process and over RANKS processes, and the first losses agree.
set -u
program=$1 tool=$2 ranks=$3 steps=$4
loss() {
    sed -n "s/^.*step *$1  loss //p"
}
alone=$("$program") || exit 1
echo "$alone"
together=$("$tool" launch -n "$ranks" -- "$program") || exit 1
echo "$together"
last=$(echo "$alone" | loss "$steps")
awk -v last="$last" 'BEGIN { exit !(last != "" && last < 0.01) }' || { echo "loss $last after $steps steps"; exit 1; }
first=$(echo "$alone" | loss 0) other=$(echo "$together" | loss 0)
awk -v a="$first" -v b="$other" 'BEGIN { exit !(a - b < 0.0002 && b - a < 0.0002) }' || {
    echo "$ranks processes begin with loss $other, one with $first"
    exit 1
}
last=$(echo "$together" | loss "$steps")
awk -v last="$last" 'BEGIN { exit !(last != "" && last < 0.01) }' || { echo "loss $last after $steps steps"; exit 1; }
