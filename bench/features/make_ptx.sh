#!/bin/sh
# Makes kernels.ptx (compute capability 7.5) and kernels_sm90.ptx (9.0) from the .cu files of the same names.
# Usage: make_ptx.sh [FOLDER]; NVCC names another nvcc.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here}
nvcc=${NVCC:-nvcc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
release=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')

# The compiler's banner goes: it names a build. The PTX version is lowered to the oldest that has everything used here,
# since a driver refuses PTX that is newer than itself. ptxas confirms that.
make_one() { # NAME CAPABILITY PTX_VERSION
    (cd "$here" && "$nvcc" -O3 -ptx -arch="compute_$2" -o "$work/$1.full" "$1.cu")
    {
        echo "// Made by make_ptx.sh from $1.cu with nvcc $release; do not edit."
        sed -e '/^\/\//d' -e "s/^\.version .*/.version $3/" "$work/$1.full" | cat -s
    } >"$work/$1.ptx"
    "$nvcc" -arch="sm_$2" -cubin -o "$work/$1.cubin" "$work/$1.ptx"
    cp "$work/$1.ptx" "$folder/$1.ptx"
}
make_one kernels 75 7.0
make_one kernels_sm90 90 7.8
