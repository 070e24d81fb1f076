#!/bin/sh
# Makes an image of nested.cu, linked with NVIDIA's device runtime, for each compute capability given.
# Usage: make_nested.sh OUTPUT [CAPABILITY...], e.g. make_nested.sh nested.fatbin 90; NVCC names another nvcc.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
output=$1
shift
nvcc=${NVCC:-nvcc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
targets=
for capability in "${@:-90}"; do targets="$targets -gencode arch=compute_$capability,code=sm_$capability"; done
# shellcheck disable=SC2086  # a list of words
{
    "$nvcc" -O3 -rdc=true $targets -dc -o "$work/nested.o" "$here/nested.cu"
    "$nvcc" $targets -dlink -fatbin -o "$work/nested.fatbin" "$work/nested.o" -lcudadevrt
}
cp "$work/nested.fatbin" "$output"
