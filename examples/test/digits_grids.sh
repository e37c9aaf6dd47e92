#!/bin/sh
# digits_grids.sh DIGITS TESSERA: the losses do not depend on the grid or the strategy.
set -u
here=$(cd "$(dirname "$0")" && pwd)
digits=$1
export TESSERA_TOOL="$2"
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
failures=0

# trains GRID STRATEGY RANKS: a training with these options succeeds and writes its log.
trains() {
    timeout 120 "$digits" --ranks "$3" --grid "$1" --strategy "$2" --epochs 2 --log "$folder/$1.$2" >"$folder/out" 2>&1 || {
        echo "grid $1, strategy $2:"
        cat "$folder/out"
        failures=$((failures + 1))
    }
}

trains 1x1 none 1
for setting in "1x2 none 2" "2x1 none 2" "2x1 full 2" "2x1 weighted 2" "2x2 full 4"; do
    # shellcheck disable=SC2086 # three words
    set -- $setting
    trains "$1" "$2" "$3"
    difference=$(awk -v limit=1e-4 -f "$here/curves.awk" "$folder/1x1.none" "$folder/$1.$2") || {
        echo "grid $1, strategy $2: losses differ from those of one process by $difference"
        failures=$((failures + 1))
    }
    echo "# grid $1, strategy $2: $difference"
done

# On the same grid of ranks, strategies give the same bits.
losses() {
    sed -n 's/.*"held_out_loss": \([^,]*\),.*/\1/p' "$1"
}
for strategy in full weighted; do
    [ "$(losses "$folder/2x1.none")" = "$(losses "$folder/2x1.$strategy")" ] || {
        echo "strategy $strategy: the losses differ from those without sharding"
        failures=$((failures + 1))
    }
done
[ "$failures" -eq 0 ]
