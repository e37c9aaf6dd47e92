#!/bin/sh
# digits_accuracy.sh DIGITS TESSERA LEAST [OPTION...]: after the training, at least LEAST per cent of the held-out images are classified
# correctly, and the checkpoints, the log and the plot have been written.
set -u
digits=$1
export TESSERA_TOOL="$2"
least=$3
shift 3
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

timeout 200 "$digits" --ranks 2 --save "$folder/model" --save-init "$folder/init" --log "$folder/log" --curve "$folder/curve.svg" "$@" \
    >"$folder/out" 2>&1 || {
    cat "$folder/out"
    exit 1
}
accuracy=$(sed -n 's/.*held-out images right (\([0-9.]*\) %).*/\1/p' "$folder/out")
echo "# $accuracy % of the held-out images are right"
awk -v got="$accuracy" -v least="$least" 'BEGIN { exit !(got + 0 >= least) }' || {
    echo "accuracy is below $least %"
    exit 1
}
# A safetensors file begins with the length of its header, which holds numbers as text.
weight_bytes() { # FILE
    echo $(($(wc -c <"$1") - 8 - $(od -An -tu8 -N8 "$1")))
}
[ "$(weight_bytes "$folder/model")" -eq "$(weight_bytes "$folder/init")" ] || {
    echo "the checkpoints before and after have weights of different sizes"
    exit 1
}
cmp -s "$folder/model" "$folder/init" && {
    echo "the checkpoints before and after are the same"
    exit 1
}
grep -q '</svg>' "$folder/curve.svg"
