# awk -f growth.awk LAYOUT_OLD LAYOUT_NEW: compares the layouts of structs that begin with their size, as layout.awk prints them, and
# prints what breaks the rules of docs/releasing.md. Programs that were built with the old headers leave padding undefined, and those with
# the new ones leave undefined what an old library takes for fields of a newer release.
{ key = $1 "." $2 }
NR == FNR { old[key] = $3 " " $4; if ($2 == "sizeof") size[$1] = $4; next }
!($1 in size) { next }
{ seen[key] = 1 }
$2 == "sizeof" { close_struct(); next }
key in old {
    if (old[key] != $3 " " $4)
        print key ": was at " place(old[key]) " and is at " place($3 " " $4)
    next
}
{
    if (struct != $1) {
        struct = $1
        end = size[$1]
    }
    if ($3 < size[$1] && $2 ~ /^reserved/) # fills the padding, and is never read
        next
    if ($3 < size[$1])
        print key ": lies in the padding at the end of the released struct of " size[$1] " bytes"
    else if ($3 != end)
        print key ": " $3 - end " bytes of padding come before this field; name them `reserved`"
    end = $3 + $4
}
function place(numbers,   n) {
    split(numbers, n, " ")
    return n[1] " with " n[2] " bytes"
}
function close_struct() {
    if (struct == $1 && $4 != end)
        print $1 ": " $4 - end " bytes of padding follow the last new field; name them `reserved`"
    else if (struct != $1 && $4 != size[$1])
        print $1 ": had " size[$1] " bytes and has " $4
    struct = ""
}
END {
    for (key in old)
        if (!(key in seen) && key !~ /\.sizeof$/)
            print key ": is gone"
}
