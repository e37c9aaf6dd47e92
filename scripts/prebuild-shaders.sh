#!/bin/sh
# Compiles the shaders that Debian 12's glslc cannot compile, and writes their SPIR-V to shaders/prebuilt.
#
#   GLSLC=/path/to/glslc scripts/prebuild-shaders.sh     a glslc of shaderc 2026.4 or later; commit the files that this writes
#   scripts/prebuild-shaders.sh --check                  prints TAP: whether the SPIR-V is that of the present sources; any glslc
#
# The first line of each file has a digest of the preprocessed source without white space, which is the same for every version of glslc.
set -eu
cd "$(dirname "$0")/.."
GLSLC=${GLSLC:-glslc}
flags='-I shaders -DTSR_STORAGE16=1'
sources='shaders/gpu/attention_coopmat.comp shaders/gpu/attention_coopmat_bf16.comp
         shaders/gpu/matmul_coopmat.comp shaders/gpu/matmul_coopmat_bf16.comp shaders/gpu/matmul_coopmat2.comp
         shaders/gpu/matmul_coopmat2_bf16.comp bench/ceilings/coopmat_peak.comp'

stored() { # SOURCE: prints the file that has its SPIR-V
    echo "shaders/prebuilt/$(basename "$1" .comp).inc"
}
target() { # SOURCE: prints the option for the target of its SPIR-V; as in shaders/meson.build
    case $1 in
    *coopmat2*) echo --target-env=vulkan1.3 ;;
    *) echo --target-env=vulkan1.2 ;;
    esac
}
digest() { # SOURCE
    # shellcheck disable=SC2086 # flags
    "$GLSLC" $flags "$(target "$1")" -E "$1" | grep -v '^#line\|GL_GOOGLE_include_directive' | tr -d ' \t\n' | sha256sum | cut -d' ' -f1
}

is_current() { # SOURCE
    [ "$(sed -n '1s/.* digest \([0-9a-f]*\) .*/\1/p' "$(stored "$1")")" = "$(digest "$1")" ] && return
    echo "# $1 has changed since $(stored "$1") was made: run scripts/prebuild-shaders.sh with a recent glslc"
    return 1
}
if [ "${1-}" = --check ]; then
    . tests/source/tap.sh
    for source in $sources; do
        point "$(stored "$source") is current" is_current "$source"
    done
    plan
    exit
fi

mkdir -p shaders/prebuilt
for source in $sources; do
    file=$(stored "$source")
    # shellcheck disable=SC2086 # flags
    "$GLSLC" $flags "$(target "$source")" -Werror -O0 -mfmt=c -o "$file.new" "$source"
    {
        echo "/* SPIR-V of $source by $("$GLSLC" --version | head -1); digest $(digest "$source") of its source */"
        cat "$file.new"
    } >"$file"
    rm "$file.new"
done
