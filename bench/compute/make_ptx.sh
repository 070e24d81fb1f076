#!/bin/sh
# Makes kernels.ptx from kernels.cu: PTX for compute capability 7.5 (Turing, the oldest that VUDA names) and newer.
# Usage: make_ptx.sh [OUTPUT]; NVCC names another nvcc.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
output=${1:-$here/kernels.ptx}
nvcc=${NVCC:-nvcc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

release=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
(cd "$here" && "$nvcc" -O3 -ptx -arch=compute_75 -o "$work/full.ptx" kernels.cu)

# The compiler's banner goes: it names a build. The PTX version is lowered to 7.0, which drivers from 450 on take: a driver
# refuses PTX that is newer than itself, and these kernels use nothing new. ptxas confirms that.
{
    echo "// Made by make_ptx.sh from kernels.cu with nvcc $release; do not edit."
    sed -e '/^\/\//d' -e 's/^\.version .*/.version 7.0/' "$work/full.ptx" | cat -s
} >"$work/kernels.ptx"
"$nvcc" -arch=sm_75 -cubin -o "$work/kernels.cubin" "$work/kernels.ptx"
cp "$work/kernels.ptx" "$output"
