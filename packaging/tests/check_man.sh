#!/usr/bin/env bash
# Do the manual pages format without a complaint? check_man.sh PAGE...
# Exit status 77: cannot be checked here.
set -euo pipefail

status=77
if command -v man >/dev/null && command -v groff >/dev/null; then
    status=0
    for page in "$@"; do
        said=$(LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings -l "$page" 2>&1 >/dev/null) || status=1
        if [ -n "$said" ]; then
            printf '%s: %s\n' "$page" "$said"
            status=1
        fi
    done
else
    echo "man: not checked, man-db or groff is not installed"
fi
if command -v mandoc >/dev/null; then
    [ $status -ne 77 ] || status=0
    for page in "$@"; do
        # pandoc writes .PP behind .SH, and its font for code is not mandoc's; neither shows.
        said=$(mandoc -Tlint -Wwarning "$page" 2>&1 | grep -v 'skipping paragraph macro: PP after SH\|invalid escape sequence: \\f\[') || true
        if [ -n "$said" ]; then
            printf '%s\n' "$said"
            status=1
        fi
    done
else
    echo "mandoc: not checked, it is not installed"
fi
exit $status
