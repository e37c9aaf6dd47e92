# Reads tests/lanes/options.txt. Prints each pair of values of two options that occurs in no build. Fails if there is such a pair.
/^#/ { next }
!columns {
    columns = NF
    for (i = 1; i <= NF; i++)
        name[i] = $i
    next
}
{
    if (NF != columns) {
        print "a line has " NF " words instead of " columns ": " $0
        missing++
    }
    builds++
    for (i = 3; i < NF; i++)
        for (j = i + 1; j <= NF; j++)
            met[i, $i, j, $j] = 1
}
END {
    count = split("enabled disabled", values, " ")
    for (i = 3; i < columns; i++)
        for (j = i + 1; j <= columns; j++)
            for (a = 1; a <= count; a++)
                for (b = 1; b <= count; b++)
                    if (!met[i, values[a], j, values[b]]) {
                        print "no build has " name[i] " " values[a] " and " name[j] " " values[b]
                        missing++
                    }
    exit missing > 0 || columns < 9 || builds < 1
}
