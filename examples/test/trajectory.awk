# awk -v steps=N -f trajectory.awk RECORDED.json LOG.jsonl: compares the losses and gradient norms of the first N steps. Prints the largest
# relative differences. Fails if one is above 1e-4, or if steps are missing.
function numbers(text, key, out,    at, rest) {
    at = index(text, "\"" key "\": [")
    if (at == 0) return 0
    rest = substr(text, at + length(key) + 5)
    sub(/\].*/, "", rest)
    return split(rest, out, /, */)
}
function value(name,    at) {
    at = index($0, "\"" name "\": ")
    return at == 0 ? "" : substr($0, at + length(name) + 4) + 0
}
function difference(a, b) {
    return a > b ? (a - b) / a : (b - a) / a
}
NR == FNR { text = text $0; next }
FNR == 1 { recorded = numbers(text, "loss_f64", loss); numbers(text, "grad_norm_f64", norm) }
{
    step = value("step") + 1
    loss_worst = difference(loss[step], value("loss")) > loss_worst ? difference(loss[step], value("loss")) : loss_worst
    norm_worst = difference(norm[step], value("grad_norm")) > norm_worst ? difference(norm[step], value("grad_norm")) : norm_worst
    seen++
}
END {
    printf "%d steps, losses differ by %.1e, gradient norms by %.1e\n", seen, loss_worst, norm_worst
    exit !(seen == steps && seen <= recorded && loss_worst <= 1e-4 && norm_worst <= 1e-4)
}
