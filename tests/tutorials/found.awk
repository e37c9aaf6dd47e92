# found.awk EXPECTED OUTPUT: each line of EXPECTED must be a line of OUTPUT. "…" stands for any text; a line that is only "…" requires
# nothing.
function matches(line, expected,    count, parts, i, at, rest) {
    count = split(expected, parts, "…")
    if (count == 1)
        return line == expected
    if (substr(line, 1, length(parts[1])) != parts[1])
        return 0
    rest = substr(line, length(parts[1]) + 1)
    for (i = 2; i < count; i++) {
        at = index(rest, parts[i])
        if (at == 0)
            return 0
        rest = substr(rest, at + length(parts[i]))
    }
    return length(rest) >= length(parts[count]) && substr(rest, length(rest) - length(parts[count]) + 1) == parts[count]
}
FNR == NR {
    if ($0 != "…")
        expected[++lines] = $0
    next
}
{ output[++outputs] = $0 }
END {
    if (lines == 0) {
        print "the text has no line to compare"
        exit 1
    }
    for (l = 1; l <= lines; l++) {
        found = 0
        for (o = 1; o <= outputs && !found; o++)
            found = matches(output[o], expected[l])
        if (!found) {
            print "not in the output: " expected[l]
            missing = 1
        }
    }
    exit missing
}
