#!/bin/sh
# Compiles the shaders that Debian 12's glslc cannot compile, and stores their SPIR-V in shaders/prebuilt.
#
#   GLSLC=/path/to/glslc scripts/prebuild-shaders.sh     a glslc of shaderc 2026.4 or later; commit the files that this writes
#   scripts/prebuild-shaders.sh --check                  prints TAP: whether the SPIR-V is that of the present sources; any glslc
#
# shaders/prebuilt/manifest has a paragraph for each file: its source, the compiler and the options that made it, a digest of what was
# compiled and a digest of the result. The first digest is of the options and the preprocessed source without white space, which is the
# same for every version of glslc.
set -eu
cd "$(dirname "$0")/.."
GLSLC=${GLSLC:-glslc}
folder=shaders/prebuilt
manifest=$folder/manifest
sources='shaders/gpu/attention_coopmat.comp shaders/gpu/attention_coopmat_bf16.comp shaders/gpu/attention_coopmat2.comp
         shaders/gpu/attention_coopmat2_bf16.comp shaders/gpu/delta_scan_coopmat.comp
         shaders/gpu/matmul_coopmat.comp shaders/gpu/matmul_coopmat_bf16.comp shaders/gpu/matmul_coopmat2.comp
         shaders/gpu/matmul_coopmat2_bf16.comp shaders/gpu/matmul_grouped_coopmat.comp
         shaders/gpu/matmul_grouped_coopmat_bf16.comp bench/ceilings/coopmat_peak.comp
         tests/gpu/attention/attention_coopmat2_subgroup.comp'

stored() { # SOURCE: prints the file that has its SPIR-V
    echo "$folder/$(basename "$1" .comp).spv"
}
options() { # SOURCE: prints the options that it is compiled with; as in shaders/meson.build
    case $1 in
    *coopmat2*) target=vulkan1.3 ;;
    *) target=vulkan1.2 ;;
    esac
    echo "-I shaders -DTSR_STORAGE16=1 --target-env=$target -Werror -O0"
}
compiler() {
    "$GLSLC" --version | head -1
}
source_digest() { # SOURCE
    {
        options "$1"
        # shellcheck disable=SC2046 # options
        "$GLSLC" $(options "$1") -E "$1" | grep -v '^#line\|GL_GOOGLE_include_directive' | tr -d ' \t\n'
    } | sha256sum | cut -d' ' -f1
}
file_digest() { # FILE
    sha256sum "$1" | cut -d' ' -f1
}
compile() { # SOURCE OUT
    # shellcheck disable=SC2046 # options
    "$GLSLC" $(options "$1") -o "$2" "$1"
}
entry() { # SOURCE KEY: prints a value of its paragraph in the manifest
    awk -v file="$(stored "$1")" -v key="$2:" \
        '$1 == "file:" { here = $2 == file } here && $1 == key { sub(/^[a-z-]+: */, ""); print }' "$manifest"
}

is_same() { # SOURCE KEY PRESENT: the manifest has the present value
    [ "$(entry "$1" "$2")" = "$3" ] && return
    echo "# the $2 of $(stored "$1") is now '$3', but '$(entry "$1" "$2")' in $manifest:" \
        "run scripts/prebuild-shaders.sh with a recent glslc"
    return 1
}
is_current() { # SOURCE
    is_same "$1" source "$1" && is_same "$1" options "$(options "$1")" && is_same "$1" source-digest "$(source_digest "$1")" &&
        is_same "$1" file-digest "$(file_digest "$(stored "$1")")"
}
compiles_to() { # SOURCE: this compiler makes the stored file
    compile "$1" "$scratch" && cmp "$scratch" "$(stored "$1")"
}
all_listed() { # the manifest and the folder have the files of `sources` and no others
    files=$(for source in $sources; do stored "$source"; done | sort)
    [ "$(sed -n 's/^file: *//p' "$manifest" | sort)" = "$files" ] && [ "$(find "$folder" -name '*.spv' | sort)" = "$files" ]
}
all_needed() { # `sources` has each shader of shaders/meson.build that needs a feature of the compiler
    needed=$(sed -n "s|^ *\['\(.*/[a-z0-9_]*\)',.*, \['.*'\]\],|shaders/\1.comp|p" shaders/meson.build | sort)
    [ -n "$needed" ] && [ "$(for source in $sources; do echo "$source"; done | grep "^shaders/" | sort)" = "$needed" ]
}
if [ "${1-}" = --check ]; then
    . tests/source/tap.sh
    scratch=$(mktemp)
    trap 'rm -f "$scratch"' EXIT
    point "$folder has the listed files" all_listed
    point "the shaders that need a feature of the compiler are listed" all_needed
    for source in $sources; do
        point "$(stored "$source") is current" is_current "$source"
        if [ "$(entry "$source" compiler)" = "$(compiler)" ]; then
            point "this compiler makes $(stored "$source")" compiles_to "$source"
        fi
    done
    plan
    exit
fi

mkdir -p "$folder"
for source in $sources; do
    compile "$source" "$(stored "$source")"
done
{
    echo '# Written by scripts/prebuild-shaders.sh.'
    for source in $sources; do
        file=$(stored "$source")
        printf '\nfile: %s\nsource: %s\ncompiler: %s\noptions: %s\nsource-digest: %s\nfile-digest: %s\n' \
            "$file" "$source" "$(compiler)" "$(options "$source")" "$(source_digest "$source")" "$(file_digest "$file")"
    done
} >"$manifest"
