# Reads meson's testlog.json, which has one line for each test executable. Prints the numbers of TAP points that passed, failed and were
# skipped. Prints each skipped point with its reason to standard error. An executable that crashed, ran out of time or printed no valid TAP
# counts as one failure, unless one of its points has failed. An executable that prints no TAP counts as one point.
function skip(what) {
    name = $0
    sub(/^{"name": "/, "", name)
    sub(/".*/, "", name)
    print "skipped: " name ": " what > "/dev/stderr"
    skipped++
}
{
    passed = failed = skipped = 0
    result = $0
    sub(/.*"result": "/, "", result)
    sub(/".*/, "", result)

    # The output of a test is one JSON string, in which the two characters \n separate lines.
    output = $0
    if (sub(/.*"stdout": "/, "", output))
        sub(/", "result": ".*/, "", output)
    else
        output = ""
    count = split(output, line, /\\n/)
    for (i = 1; i <= count; i++) {
        if (line[i] ~ /^ok / && line[i] ~ /# SKIP/)
            skip(line[i])
        else if (line[i] ~ /^ok /)
            passed++
        else if (line[i] ~ /^not ok /)
            failed++
    }
    if (result != "OK" && result != "SKIP" && failed == 0)
        failed = 1
    if (result == "OK" && passed == 0)
        passed = 1
    if (result == "SKIP" && skipped == 0)
        skip("all of it")
    all_passed += passed
    all_failed += failed
    all_skipped += skipped
}
END { print all_passed + 0, all_failed + 0, all_skipped + 0 }
