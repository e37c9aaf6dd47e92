# awk -v steps=N -f trajectory.awk RECORDED.json LOG.jsonl: compares the losses and gradient norms of the first N steps, and the auxiliary
# losses and the loads of experts if they are recorded. Prints the largest relative differences. Fails if one is above 1e-4, if a load
# differs, or if steps are missing.
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
# Sets loads[step] to what is recorded of each step, without spaces: "[[1,2],[3,4]]".
function read_loads(text,    at, count, i) {
    at = index(text, "\"tokens_per_expert\": [")
    if (at == 0) return
    text = substr(text, at + length("\"tokens_per_expert\": ["))
    gsub(/ /, "", text)
    sub(/\]\]\].*/, "]]", text)
    count = split(text, loads, /\]\],/)
    for (i = 1; i < count; i++)
        loads[i] = loads[i] "]]"
}
function load_of_line(    at, text) {
    at = index($0, "\"load\": ")
    text = substr($0, at + length("\"load\": "))
    gsub(/ |\}/, "", text)
    return text
}
function difference(a, b) {
    return a > b ? (a - b) / a : (b - a) / a
}
NR == FNR { text = text $0; next }
FNR == 1 {
    recorded = numbers(text, "loss_f64", loss)
    numbers(text, "grad_norm_f64", norm)
    has_aux = numbers(text, "aux_f64", aux)
    read_loads(text)
}
{
    step = value("step") + 1
    loss_worst = difference(loss[step], value("loss")) > loss_worst ? difference(loss[step], value("loss")) : loss_worst
    norm_worst = difference(norm[step], value("grad_norm")) > norm_worst ? difference(norm[step], value("grad_norm")) : norm_worst
    if (has_aux)
        norm_worst = difference(aux[step], value("aux")) > norm_worst ? difference(aux[step], value("aux")) : norm_worst
    if (step in loads && loads[step] != load_of_line())
        wrong = wrong " step " step - 1 " has other loads;"
    seen++
}
END {
    printf "%s", wrong
    printf "%d steps, losses differ by %.1e, gradient norms by %.1e\n", seen, loss_worst, norm_worst
    exit !(wrong == "" && seen == steps && seen <= recorded && loss_worst <= 1e-4 && norm_worst <= 1e-4)
}
