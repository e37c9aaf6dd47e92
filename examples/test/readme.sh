#!/bin/sh
# readme.sh DOCUMENT PROGRAM…: one of the programs contains each C block of the document, line for line, apart from indentation. The
# document has a block from each program.
set -u
document=$1
shift
awk -v document="$document" '
    function stripped(line) {
        sub(/^[ \t]+/, "", line)
        return line
    }
    FILENAME == document {
        if (/^```c$/) {
            inside = 1
            blocks++
        } else if (/^```/) {
            inside = 0
        } else if (inside) {
            block[blocks] = block[blocks] "\n" stripped($0)
        }
        next
    }
    { program[FILENAME] = program[FILENAME] "\n" stripped($0) }
    END {
        for (b = 1; b <= blocks; b++) {
            found = 0
            for (name in program)
                if (index(program[name] "\n", block[b] "\n")) {
                    found = 1
                    shown[name] = 1
                }
            if (!found) {
                print "block " b " of " document " is not in any of the programs:" block[b]
                failed = 1
            }
        }
        for (name in program)
            if (!(name in shown)) {
                print document " has no block from " name
                failed = 1
            }
        exit failed
    }
' "$document" "$@"
