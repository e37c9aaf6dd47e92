# Completion of the tessera command for bash. It asks the tool for its commands, benchmarks and options, so that it is never out of date.

# Prints the help of a command such as "bench model". For "bench matmul", which has no help of its own, prints that of "bench".
_tessera_help() {
    # shellcheck disable=SC2086 # the words of the command
    "${COMP_WORDS[0]}" help $1 2>/dev/null || "${COMP_WORDS[0]}" help ${1%% *} 2>/dev/null
}

_tessera_options() {
    _tessera_help "$1" | sed -n '/^options:$/,/^$/s/^  \(--[a-z0-9-]*\).*/\1/p'
}

# Prints the words that may follow a command: other commands, benchmarks, or kinds of samplers.
_tessera_words() {
    local command=$1
    [[ $command == help ]] && command=''
    _tessera_help "$command" |
        sed -n -e '/^[a-z ]*commands:$/,/^$/s/^  \(tessera '"$command"' \)\{0,1\}\([a-z][a-z-]*\) .*/\2/p' \
            -e '/^\(benchmarks\|kinds\):$/,/^$/s/^  \([a-z][a-z-]*\)  .*/\1/p'
}

_tessera() {
    local current=${COMP_WORDS[COMP_CWORD]} command='' words word
    words=$(_tessera_words "")
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        # A word that cannot follow the command is an argument or an option.
        [[ " ${words//$'\n'/ } " == *" $word "* ]] || { words='' && break; }
        command+="${command:+ }$word"
        [[ $command == *" "* ]] && words='' || words=$(_tessera_words "$command")
    done
    [[ $current == -* ]] && words=$(_tessera_options "$command")
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}

# Without a match, bash completes the names of files.
complete -o default -F _tessera tessera
