#!/bin/sh
# transformer.sh HELLO_TRANSFORMER TOOL RANKS: the program learns its sentence and writes it, as one process and over RANKS processes.
set -u
program=$1 tool=$2 ranks=$3
loss() {
    sed -n "s/^.*step *$1  loss //p"
}
alone=$("$program") || exit 1
echo "$alone"
together=$("$tool" launch -n "$ranks" -- "$program") || exit 1
echo "$together"
first=$(echo "$alone" | loss 0) other=$(echo "$together" | loss 0)
awk -v a="$first" -v b="$other" 'BEGIN { exit !(a != "" && a - b < 0.0005 && b - a < 0.0005) }' || {
    echo "$ranks processes begin with loss $other, one with $first"
    exit 1
}
for output in "$alone" "$together"; do
    echo "$output" | grep -q 'the q|uick brown fox jumps over the lazy dog the b$' || {
        echo "the sentence is not what it wrote"
        exit 1
    }
done
