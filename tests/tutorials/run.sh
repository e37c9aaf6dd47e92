#!/bin/sh
# run.sh ROOT BUILD TUTORIAL: runs the blocks of one tutorial as a reader would, in a fresh folder, with an installed copy of BUILD. If
# BUILD is "installed", uses what the system has installed.
# Blocks of sh run one after the other, each in a shell of its own. A block of text must be in the output of the block of sh before it.
# TEST_HAVE lists what this machine has for blocks that need it, such as "slurm". If the word is not in the list, the "instead" command of
# the block runs, or the block is skipped, together with the text after it. TUTORIAL_FILES is a folder with the files that the reader has in
# the current folder.
set -u
root=$1
build=$2
tutorial=$3
tools=$root/tests/tutorials
. "$root/tests/source/tap.sh"
. "$root/tests/source/prefix.sh"

folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/blocks" "$folder/work" "$folder/cache"
[ -z "${TUTORIAL_FILES-}" ] || cp -r "$TUTORIAL_FILES/." "$folder/work" || exit 1

# All tutorials of a build folder share one installed copy. Only files that have changed are copied again.
shared=$build/tests/tutorials-installed
prefix=$shared/usr/local
install_all() {
    mkdir -p "$shared" &&
        flock "$shared.lock" meson install -C "$build" --no-rebuild --only-changed --destdir "$shared" --quiet
}
if [ "$build" != installed ]; then
    point "installs" install_all
    find_libdir "$prefix"
    export PATH="$prefix/bin:$PATH" LD_LIBRARY_PATH="$libdir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi
# Compiled kernels are kept between tests if the environment names a cache folder.
export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$folder/cache}"
# "instead" commands copy files from here: the sources of the repository.
export TESSERA_SOURCE="$root"

run_block() { # FILE
    (cd "$folder/work" && timeout 120 sh -e "$1" >"$folder/output" 2>&1 </dev/null) || {
        status=$?
        cat "$folder/output"
        echo "exit status $status"
        return 1
    }
}
# If a text is not in the output, prints the output.
in_output() { # FILE
    awk -f "$tools/found.awk" "$1" "$folder/output" || {
        cat "$folder/output"
        return 1
    }
}
have() { # WORD
    case " ${TEST_HAVE:-} " in *" $1 "*) ;; *) false ;; esac
}
list_blocks() {
    awk -v folder="$folder/blocks" -f "$tools/blocks.awk" "$tutorial" >"$folder/list"
}

point "blocks" list_blocks
: >"$folder/output"
ran=yes
while read -r kind line block text; do
    if [ "$kind" = needs ]; then
        if have "${text%%: *}"; then
            kind='sh'
        elif [ -e "$block.instead" ]; then
            kind='sh' block=$block.instead
        else
            kind='skip'
        fi
        text=${text#*: }
    fi
    # An output can be compared only if its commands ran.
    [ "$kind" = text ] && [ "$ran" = no ] && kind=skip && text="its commands did not run"
    case $kind in sh) ran=yes ;; skip) ran=no ;; esac
    case $kind in
    sh) point "line $line: runs" run_block "$block" ;;
    text) point "line $line: is in the output" in_output "$block" ;;
    file) cp "$block" "$folder/work/$text" ;;
    skip) skip "line $line" "$text" ;;
    *) point "line $line: a block of '$kind'" false ;;
    esac
done <"$folder/list"
plan
