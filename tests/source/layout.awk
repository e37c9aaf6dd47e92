# awk -f layout.awk ABI_H: prints a C program that prints, for each struct of tests/data/abi.h (or of a file like it) that begins with
# its size, a line "STRUCT FIELD OFFSET BYTES" for each field and a last line "STRUCT sizeof 0 BYTES".
BEGIN {
    print "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n#define TSR_API"
    print "#include \"" ARGV[1] "\"\nint main(void) {"
}
/^typedef struct tsr_[a-z0-9_]+ {$/ { struct = $3; text = ""; next }
struct != "" && /^}/ {
    if (text ~ /^ *size_t struct_size;/)
        print_fields()
    struct = ""
    next
}
struct != "" { text = text " " $0 }
END { print "}" }

function print_fields(   count, statements, i, names, n, j) {
    count = split(text, statements, ";")
    for (i = 1; i < count; i++) {
        if (match(statements[i], /\(\*[a-z0-9_]+\)/)) { # a pointer to a function
            print_field(substr(statements[i], RSTART + 2, RLENGTH - 3))
            continue
        }
        n = split(statements[i], names, ",")
        for (j = 1; j <= n; j++) {
            sub(/\[.*/, "", names[j])
            sub(/ *$/, "", names[j])
            sub(/^.*[ *]/, "", names[j])
            print_field(names[j])
        }
    }
    printf "    printf(\"%s sizeof 0 %%zu\\n\", sizeof(%s));\n", struct, struct
}
function print_field(name) {
    printf "    printf(\"%s %s %%zu %%zu\\n\", offsetof(%s, %s), sizeof(((%s *)0)->%s));\n", struct, name, struct, name, struct, name
}
