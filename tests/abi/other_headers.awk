# awk -v set=older|newer -f other_headers.awk HEADER: prints a public header as an older or a newer release would have it. In the older
# one, each struct that begins with struct_size lacks its last field, if it has more than one; in the newer one it has another field,
# `newer_field`. The rules of include/tessera/base.h promise that programs built with either work with this library.

# Prints the struct in `text`, which ends before its closing brace.
function changed(text,   bare, rest, from, to, count) {
    if (set == "newer")
        return text "    uint64_t newer_field;\n"
    # Replaces comments by blanks, so that semicolons are those of fields only and positions stay the same.
    bare = ""
    rest = text
    while ((from = index(rest, "/*")) > 0) {
        to = from + 2 + index(substr(rest, from + 2), "*/")
        bare = bare substr(rest, 1, from - 1) sprintf("%" (to - from + 1) "s", "")
        rest = substr(rest, to + 1)
    }
    bare = bare rest
    count = gsub(/;/, ";", bare)
    if (count < 3)
        return text
    to = length(bare)
    while (substr(bare, to, 1) != ";")
        to--
    from = to - 1
    while (substr(bare, from, 1) != ";")
        from--
    return substr(text, 1, from) substr(text, to + 1)
}

/^typedef struct tsr_[a-z0-9_]+ {$/ { begun = $0 "\n"; fields = ""; sized = 0; lines = 0; next }
begun != "" && /^}/ {
    printf "%s%s%s\n", begun, sized ? changed(fields) : fields, $0
    begun = ""
    next
}
begun != "" {
    if (lines++ == 0)
        sized = /^    size_t struct_size;/
    fields = fields $0 "\n"
    next
}
{ print }
