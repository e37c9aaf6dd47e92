# Reads a list of sources, one path per line, and then the output of `nm -A -g` for its object files, which is in the file
# named by -v symbols=FILE. Prints a line for each circle, "MEMBERS across|inside PATH", where PATH is one way around it with a symbol for
# each step. The last line is the number of sources.
# Breadth-first search from `from`: fills `seen` with the sources that it reaches, and `before` with the step before each.
function search(from, seen, before,    queue, head, tail, at, i, next_source) {
    split("", seen)
    split("", before)
    queue[tail++] = from
    while (head < tail) {
        at = queue[head++]
        for (i = 1; i <= degree[at]; i++) {
            next_source = edge[at, i]
            if (!(next_source in seen)) {
                seen[next_source] = 1
                before[next_source] = at
                queue[tail++] = next_source
            }
        }
    }
}
function folder_of(path) {
    sub(/\/[^\/]*$/, "", path)
    return path
}
FILENAME != symbols { # lines of the list of sources
    mangled = $0
    gsub(/\//, "_", mangled)
    source_of[mangled] = $0
    next
}
{
    colon = index($0, ":")
    object = substr($0, 1, colon - 1)
    if (object != last_object) {
        last_object = object
        sub(/\/[^\/]*\.p\//, "/", object)
        sub(/\.o$/, "", object)
        gsub(/\//, "_", object)
        sub(/src_cli_\.\._\.\._/, "", object)
        file = source_of[object]
    }
    if (file == "") # a generated source
        next
    kind = $(NF - 1)
    if (kind == "U")
        uses[++use_count] = file " " $NF
    else if (($NF in definer) && definer[$NF] != file)
        shared[$NF] = 1 # defined twice, so a use does not depend on a particular definition
    else
        definer[$NF] = file
}
END {
    for (u = 1; u <= use_count; u++) {
        split(uses[u], pair, " ")
        to = definer[pair[2]]
        if (to == "" || to == pair[1] || (pair[2] in shared) || ((pair[1], to) in why))
            continue
        why[pair[1], to] = pair[2]
        edge[pair[1], ++degree[pair[1]]] = to
        source[pair[1]] = 1
        source[to] = 1
    }
    for (file in source)
        files++
    for (file in source) {
        if (file in placed)
            continue
        search(file, seen, before)
        if (!(file in seen))
            continue
        # The circle of `file` consists of the sources that `file` reaches and that also reach `file`.
        members = 0
        across = 0
        for (other in seen) {
            search(other, back, ignored)
            if (file in back) {
                placed[other] = 1
                members++
                if (folder_of(other) != folder_of(file))
                    across = 1
            }
        }
        search(file, seen, before)
        path = at = file
        do {
            path = before[at] " -(" why[before[at], at] ")-> " path
            at = before[at]
        } while (at != file)
        printf "%d %s %s\n", members, across ? "across" : "inside", path
    }
    print files + 0 " files"
}
