#!/bin/bash
# completion.sh BUILD: checks what the completion for bash suggests.
cd "$(dirname "$0")/../.." || exit 1
. tests/source/tap.sh
. src/cli/completion.bash
tool=$1/src/cli/tessera

# suggests "WANTED" WORD…: the last word is being typed. WANTED is a part of the list of suggestions, or "nothing".
suggests() {
    local wanted=$1
    shift
    COMP_WORDS=("$tool" "$@")
    COMP_CWORD=$#
    COMPREPLY=()
    _tessera
    local list=" ${COMPREPLY[*]} "
    echo "suggested:$list"
    if [ "$wanted" = nothing ]; then [ ${#COMPREPLY[@]} = 0 ]; else [[ $list == *" $wanted "* ]]; fi
}

# complete_options WORD…: checks that exactly the options in the help of this command are suggested. In the help, a long
# option follows two spaces, and a comma may follow the option.
complete_options() {
    local expected got
    expected=$("$tool" help "$@" | awk '/^options:$/ { inside = 1; next } /^[^ ]/ { inside = 0 } inside && /^  -/ { print $1 }' | tr -d , | sort)
    COMP_WORDS=("$tool" "$@" --)
    COMP_CWORD=$(($# + 1))
    COMPREPLY=()
    _tessera
    got=$(printf '%s\n' "${COMPREPLY[@]}" | sort)
    [ "$expected" = "$got" ] || { printf 'help has:\n%s\nsuggested:\n%s\n' "$expected" "$got"; false; }
}

point "commands" suggests "devices bench sample" ""
point "a command" suggests "bench" be
point "an option of a command" suggests "--strategy" plan --str
point "kinds of samplers" suggests "weighted" sample w
point "commands after help" suggests "launch" help la
point "files after a command without parts" suggests nothing convert mod
point "options after a file" suggests "--prompt --file --ids" generate model.gguf --
point "parts of checkpoint" suggests "show verify merge" checkpoint ""
point "parts of data" suggests "check" data ""
point "options of merge" suggests "--output --force" checkpoint merge --
point "no commands after a file" suggests nothing generate model.gguf pl
while read -r command; do
    # shellcheck disable=SC2086 # several words
    point "the options of ${command:-tessera}" complete_options $command
done <<END
devices
sample
plan
generate
info
tokenize
convert
quantize
checkpoint show
checkpoint verify
checkpoint merge
data check
launch
END
if "$tool" help bench | grep -q 'This build has no benchmarks'; then
    skip "benchmarks and their options" "this build has no benchmarks"
else
    point "benchmarks and parts of bench" suggests "report compare model" bench ""
    point "a benchmark" suggests "rng" bench r
    point "options of a benchmark" suggests "--time" bench rng --ti
    point "the option for submissions" suggests "--submit" bench --su
    point "an option of bench report" suggests "--check" bench report --ch
    point "options of a part" suggests "--shape" bench model --sh
    point "the options of bench" complete_options bench
    point "the options of bench report" complete_options bench report
    point "the options of bench compare" complete_options bench compare
    point "the options of bench model" complete_options bench model
fi
plan
