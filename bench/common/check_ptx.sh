#!/bin/sh
# Fails when a .ptx is not what make_ptx.sh beside it makes of its .cu. Skips (77) without an nvcc of the release that made it,
# since releases word PTX differently.
#
#   check_ptx.sh FOLDER OUTPUT NAME...     OUTPUT: what FOLDER/make_ptx.sh is given, in an empty folder; NAMEs without .ptx
set -eu
folder=$1
output=$2
shift 2
nvcc=${NVCC:-nvcc}
if ! command -v "$nvcc" >/dev/null; then
    echo "SKIP: no nvcc on the PATH"
    exit 77
fi
made_with=$(sed -n '1s/.*with nvcc \([0-9.]*\);.*/\1/p' "$folder/$1.ptx")
release=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
if [ "$made_with" != "$release" ]; then
    echo "SKIP: $1.ptx was made with nvcc $made_with, this one is $release"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$folder/make_ptx.sh" "$work/$output"
for name in "$@"; do diff -u "$folder/$name.ptx" "$work/$name.ptx"; done
