#!/usr/bin/env bash
# Collects a built tree into one directory that runs on another machine: x86-64 Linux with a glibc no older than this one's,
# without any of Debian's packages but a Vulkan loader.
#
#   bench/pack.sh BUILD_DIRECTORY OUTPUT_DIRECTORY        e.g. bench/pack.sh build/release pack
#   pack/bench/corun.py                                   there
#
# The layout is a build tree's (bin, lib), plus deps/ with the libraries that vudad and vudactl need. Those two find deps/ by
# a run path of their own: no environment variable is set, so nothing reaches the programs that are measured. Debug
# information is left out. Needs patchelf.
set -euo pipefail

if [ $# -ne 2 ]; then
    sed -n '2,10p' "$0" >&2
    exit 64
fi
build=$(realpath "$1")
output=$(realpath -m "$2")
here=$(cd "$(dirname "$0")" && pwd)
command -v patchelf >/dev/null || {
    echo "pack.sh: patchelf is missing: apt-get install patchelf" >&2
    exit 69
}
[ -x "$build/bin/vudactl" ] || {
    echo "pack.sh: $build/bin/vudactl is not there: build first" >&2
    exit 69
}
if [ -e "$output" ] && [ ! -e "$output/.vuda-pack" ]; then
    echo "pack.sh: $output exists and is not an earlier pack: remove it or name another" >&2
    exit 73
fi

rm -rf "$output"
mkdir -p "$output"/{bin,lib,deps,bench}
touch "$output/.vuda-pack"

programs=()
for program in vudad vudactl vuda-simd vuda-simctl vuda-sim-renderer vuda-sim-compute vuda-sim-pair vuda-trace vuda-probe vuda-probe-pair vuda-bench-render \
    vuda-bench-compute vuda-bench-both vuda-bench-features vuda-bench-mirror; do
    [ -x "$build/bin/$program" ] || continue
    cp "$build/bin/$program" "$output/bin/"
    programs+=("$program")
done
(cd "$build/lib" && find . \( -name 'libvuda*.so*' -o -name 'libVkLayer_vuda*' -o -name 'VkLayer_vuda*' \) -print0 |
    while IFS= read -r -d '' file; do
        mkdir -p "$output/lib/$(dirname "$file")"
        cp -P "$file" "$output/lib/$file"
    done)
if [ -f "$build/lib/vuda-bench-nested.fatbin" ]; then cp "$build/lib/vuda-bench-nested.fatbin" "$output/lib/"; fi
find "$output/bin" "$output/lib" -type f -print0 | while IFS= read -r -d '' file; do
    if [ "$(head -c 4 "$file" | tail -c 3)" = ELF ]; then strip --strip-unneeded "$file"; fi
done

# The C library comes from the machine it runs on, and has to.
is_system_library() {
    case $1 in
        linux-vdso.so.* | ld-linux* | libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | libresolv.so.* | libutil.so.*)
            return 0
            ;;
    esac
    return 1
}

# Where the dynamic linker finds what a program needs, and what that needs in turn: "NAME PATH" lines.
needed() { ldd "$1" | awk '$2 == "=>" { print $1, ($3 == "not" ? "missing" : $3) }'; }

# Measured programs use their own machine's libraries, as any program there does.
for program in "${programs[@]}"; do
    case $program in vuda-bench-* | vuda-probe-pair) continue ;; esac
    while read -r name path; do
        is_system_library "$name" && continue
        case $path in "$build"/*) continue ;; esac
        if [ "$path" = missing ]; then
            echo "pack.sh: $program needs $name, which is not found" >&2
            exit 69
        fi
        [ -e "$output/deps/$name" ] || cp -L "$path" "$output/deps/$name"
    done < <(needed "$build/bin/$program")
    # DT_RPATH, not DT_RUNPATH: it also serves the libraries' own needs.
    patchelf --force-rpath --set-rpath "\$ORIGIN/../lib:\$ORIGIN/../deps" "$output/bin/$program"
done
for program in "${programs[@]}"; do
    # Drop the build tree's run path.
    case $program in vuda-bench-* | vuda-probe-pair) patchelf --remove-rpath "$output/bin/$program" ;; esac
done

cp "$here/blas_fit.py" "$here/corun.py" "$here/partition.py" "$here/features.py" "$here/integrity.py" "$here/containment.py" "$here/mirror.py" "$here/real_programs.py" "$here/sliced.py" "$here/tuner.py" "$here/chart.py" "$output/bench/"
cp -r "$here/corunlib" "$here/programs" "$output/bench/"
rm -rf "$output/bench/corunlib/__pycache__" "$output/bench/programs/__pycache__"
git -C "$here" rev-parse HEAD >"$output/COMMIT" 2>/dev/null || echo unknown >"$output/COMMIT"

for program in "${programs[@]}"; do
    case $program in vuda-bench-* | vuda-probe-pair) continue ;; esac
    while read -r name path; do
        is_system_library "$name" && continue
        case $(realpath "$path") in "$output"/*) continue ;; esac
        echo "pack.sh: $program would take $name from $path" >&2
        exit 70
    done < <(needed "$output/bin/$program")
done
env -i "$output/bin/vudactl" --version >/dev/null
du -sm "$output" | awk '{ print "packed " $2 ": " $1 " MiB" }'
