#!/bin/sh
# Fails when a .ptx here is not what make_ptx.sh makes of its .cu. Skips (77) without an nvcc of the release that made it,
# since releases word PTX differently.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
nvcc=${NVCC:-nvcc}
if ! command -v "$nvcc" >/dev/null; then
    echo "SKIP: no nvcc on the PATH"
    exit 77
fi
made_with=$(sed -n '1s/.*with nvcc \([0-9.]*\);.*/\1/p' "$here/kernels.ptx")
release=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
if [ "$made_with" != "$release" ]; then
    echo "SKIP: kernels.ptx was made with nvcc $made_with, this one is $release"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$here/make_ptx.sh" "$work"
for name in kernels kernels_sm90; do diff -u "$here/$name.ptx" "$work/$name.ptx"; done
