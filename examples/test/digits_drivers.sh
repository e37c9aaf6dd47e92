#!/bin/sh
# digits_drivers.sh DIGITS TESSERA ICD ICD: a job with rank 0 on one driver and rank 1 on another has the same losses as one process on
# the first driver, up to the drivers' rounding of a few functions in four epochs.
set -u
here=$(cd "$(dirname "$0")" && pwd)
digits=$1
tessera=$2
export VK_DRIVER_FILES="$3:$4" VK_ICD_FILENAMES="$3:$4"
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

fail() {
    echo "$1"
    cat "$folder/out"
    exit 1
}
[ "$("$tessera" devices --json | grep -c '"uuid"')" -eq 2 ] || fail "there are not two devices"
timeout 120 "$digits" --device 0 --epochs 4 --log "$folder/one" >"$folder/out" 2>&1 || fail "one process failed"
for grid in 1x2 2x1; do
    timeout 120 "$tessera" launch -n 2 --device-map 0,1 -- "$digits" --grid $grid --epochs 4 --log "$folder/two" >"$folder/out" 2>&1 ||
        fail "grid $grid over two drivers failed"
    difference=$(awk -v limit=1e-4 -f "$here/curves.awk" "$folder/one" "$folder/two") || fail "grid $grid: losses differ by $difference"
    echo "# grid $grid over two drivers: $difference"
done
