#!/usr/bin/env bash
# Installs what a fresh Debian 12 lacks, builds, and runs the tests that need no GPU.
#
#   scripts/test.sh            release build, all tests without a GPU                    (the everyday check)
#   scripts/test.sh --ci       also formatting, result files, ASan and UBSan             (what CI runs)
#   scripts/test.sh --all      also static analysis, TSan and fuzzing                    (before a release)
#   scripts/test.sh STEP...    only these of: packages format release lint asan tsan fuzz
#
# Build trees are kept in build/PRESET, so a second run is short.
set -euo pipefail
cd "$(dirname "$0")/.."

jobs=$(nproc)
fuzz_seconds=${VUDA_FUZZ_SECONDS:-60}

say() { printf '\n== %s (%s)\n' "$*" "$(date +%H:%M:%S)"; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

step_packages() {
    say "packages"
    local missing
    # shellcheck disable=SC2046
    missing=$(dpkg-query -W -f='${Package} ${Status}\n' $(cat scripts/packages.txt) 2>/dev/null |
        awk '/ok installed$/ { have[$1] = 1 } END { for (p in have) print p }' |
        sort | comm -13 - <(sort -u scripts/packages.txt))
    if [ -n "$missing" ]; then
        as_root apt-get update -q
        # shellcheck disable=SC2086
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
    fi
}

sources() {
    git ls-files --cached --others --exclude-standard '*.cc' '*.h' '*.hpp' '*.c' | sort -u | grep -v '^bench/kernels/' || true
}

step_format() {
    say "format"
    sources | xargs clang-format-14 --dry-run -Werror
    git ls-files --cached --others --exclude-standard '*.sh' .ci/run | sort -u | xargs shellcheck
    python3 scripts/check_results.py docs/results
}

build() {
    cmake --preset "$1" >/dev/null
    cmake --build --preset "$1" -j "$jobs"
}

step_release() {
    say "release: build"
    build release
    say "release: tests"
    ctest --preset release -j "$jobs"
}

step_lint() {
    say "static analysis"
    cmake --preset release >/dev/null
    # Generated code and headers come from the build, so this step needs a built release tree.
    cmake --build --preset release -j "$jobs" >/dev/null
    sources | grep '\.cc$' | grep -v '_test\.cc$' | grep -v '_fuzzer\.cc$' |
        xargs -P "$jobs" -n 4 clang-tidy-14 -p build/release --quiet
}

step_asan() {
    say "asan+ubsan: build"
    build asan
    say "asan+ubsan: tests"
    ctest --preset asan -j "$jobs"
}

step_tsan() {
    say "tsan: build"
    build tsan
    say "tsan: tests"
    TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp ${TSAN_OPTIONS:-}" ctest --preset tsan -j "$jobs"
}

step_fuzz() {
    say "fuzz: build"
    cmake --preset fuzz >/dev/null
    cmake --build --preset fuzz -j "$jobs" --target fuzzers
    say "fuzz: $fuzz_seconds s each"
    # New inputs stay in the build tree; a crash or a worthwhile one is added to the checked-in corpus by hand.
    local list=build/fuzz/fuzzers.txt
    # shellcheck disable=SC2016
    xargs -P "$jobs" -L 1 bash -c '
        set -euo pipefail
        mkdir -p "build/fuzz/corpus/$0"
        log="build/fuzz/corpus/$0.log"
        if ! "build/fuzz/bin/$0" -max_total_time="$2" -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 \
            -artifact_prefix="build/fuzz/corpus/" "build/fuzz/corpus/$0" "$1" >"$log" 2>&1; then
            tail -n 60 "$log"; echo "fuzz: $0 failed"; exit 255
        fi
        printf "fuzz: %-28s %s inputs\n" "$0" "$(awk "/number_of_executed_units/ { print \$2 }" "$log")"
    ' < <(awk -v s="$fuzz_seconds" '{ print $1, $2, s }' "$list")
}

steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(packages release)
[ "${steps[0]}" != --ci ] || steps=(packages format release asan)
[ "${steps[0]}" != --all ] || steps=(packages format release lint asan tsan fuzz)
for step in "${steps[@]}"; do
    declare -F "step_$step" >/dev/null || { echo "unknown step '$step'" >&2; sed -n '2,10p' "$0" >&2; exit 64; }
done
for step in "${steps[@]}"; do "step_$step"; done
say "all good: ${steps[*]}"
