# awk -v limit=1e-4 -f curves.awk A.jsonl B.jsonl: compares the losses in two logs of digits. Prints the largest relative difference.
# Fails if it is above the limit, or if the logs have different epochs.
function value(name,    at) {
    at = index($0, "\"" name "\": ")
    return at == 0 ? "" : substr($0, at + length(name) + 4) + 0
}
function compare(a, b,    difference) {
    difference = a > b ? a - b : b - a
    if (!(difference <= limit * a)) wrong = 1
    if (difference / a > largest) largest = difference / a
}
FNR == 1 { next }
NR == FNR { loss[FNR] = value("loss"); held_out[FNR] = value("held_out_loss"); lines = FNR; next }
{
    if (!(FNR in held_out)) { wrong = 1; exit }
    compare(held_out[FNR], value("held_out_loss"))
    if (loss[FNR] != "") { compare(loss[FNR], value("loss")); compared++ }
    seen = FNR
}
END {
    if (seen != lines || compared == 0) { print "the logs have different epochs"; exit 1 }
    printf "%.1e\n", largest
    exit wrong
}
