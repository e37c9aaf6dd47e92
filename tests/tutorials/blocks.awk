# Writes the fenced blocks of a tutorial into files of FOLDER (-v folder=…), and prints one line for each, in order:
#   KIND LINE FILE [TEXT]
# KIND is sh (run it), text (compare it with the output before it), file (TEXT is its name), skip (TEXT is the reason) or needs (run it if
# the test has the first word of TEXT).
# Comments before a block say what to do with it: "not run: REASON", "instead: COMMAND", "file: NAME", "needs WORD: WHERE IT IS". "instead"
# runs COMMAND in place of the block; after "needs", only if the test does not have WORD (COMMAND is then in FILE.instead).
function value(line) {
    sub(/^<!-- [a-z ]*: /, "", line)
    sub(/ -->$/, "", line)
    return line
}
function fail(text) {
    print FILENAME ":" FNR ": " text >"/dev/stderr"
    failed = 1
    exit 1
}
!inside && /^<!-- not run: .* -->$/ { reason = value($0); next }
!inside && /^<!-- needs [a-z]*: .* -->$/ { needs = $3 " " value($0); next }
!inside && /^<!-- instead: .* -->$/ { instead = value($0); next }
!inside && /^<!-- file: .* -->$/ { name = value($0); next }
!inside && /^```/ {
    inside = 1
    language = substr($0, 4)
    block = folder "/" ++count
    start = FNR
    printf "" >block
    if (name == "" && reason == "" && language != "sh" && language != "text")
        fail("a block of '" language "' needs a comment before it: file, or not run")
    next
}
inside && /^```$/ {
    close(block)
    if (reason != "")
        print "skip", start, block, reason
    if (needs != "") {
        print "needs", start, block, needs
        if (instead != "") {
            print instead >(block ".instead")
            close(block ".instead")
        }
    } else if (instead != "") {
        print instead >block
        close(block)
        print "sh", start, block
    } else if (reason == "" && needs == "") {
        print name != "" ? "file" : language, start, block, name
    }
    inside = 0
    reason = instead = needs = name = ""
    next
}
inside { print >block }
END {
    if (!failed && inside)
        fail("the last block has no end")
}
