#!/usr/bin/env python3
"""Is in each package what belongs there, and nothing else?

    check_files.py debs FOLDER                            the packages in FOLDER
    check_files.py tree BUILD CMAKE PREFIX LIBDIR         what `cmake --install` puts there, component by component, and all together

A package's files are listed in packaging/debian/PACKAGE/files, one a line: the path from the root, /usr standing for the prefix and LIBDIR for where
libraries go (lib/x86_64-linux-gnu), VERSION for the version in a library's name. A line that begins with '#' is a comment. Exit status 1 names the differences.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

# Installed from a tree that has them, in no package.
BENCHMARKS = re.compile(r"/usr/bin/vuda-(bench-\w+|tuner-eval)$")
LISTS = pathlib.Path(__file__).resolve().parent.parent / "debian"


def wanted(package):
    lines = (LISTS / package / "files").read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def in_deb(deb):
    def field(name):
        return subprocess.run(["dpkg-deb", "-f", deb, name], capture_output=True, text=True, check=True).stdout.strip()

    triplet = subprocess.run(["dpkg-architecture", "-a", field("Architecture"), "-q", "DEB_HOST_MULTIARCH"],
                             capture_output=True, text=True, check=True).stdout.strip()
    listing = subprocess.run(["dpkg-deb", "-c", deb], capture_output=True, text=True, check=True).stdout
    files = set()
    for line in listing.splitlines():
        mode, _, _, _, _, name = line.split(None, 5)
        if not mode.startswith("d"):
            files.add(as_listed(name.split(" -> ")[0].removeprefix("."), "/usr", f"lib/{triplet}"))
    return field("Package"), files


def installed(build, cmake, prefix, libdir, component, folder):
    # What goes to /etc for the prefix /usr must not go there now.
    chosen = ["--component", component] if component else []
    subprocess.run([cmake, "--install", build, *chosen], env={"DESTDIR": folder, "PATH": "/usr/bin:/bin"},
                   stdout=subprocess.DEVNULL, check=True)
    paths = [path for path in pathlib.Path(folder).rglob("*") if path.is_symlink() or not path.is_dir()]
    return {as_listed("/" + str(path.relative_to(folder)), prefix, libdir) for path in paths}


def as_listed(path, prefix, libdir):
    inside = path.removeprefix(prefix)
    if inside == path or inside.startswith("/etc/"):
        return without_version(inside)
    # Units lie below lib wherever libraries do.
    if inside.startswith(f"/{libdir}/") and not inside.startswith(("/lib/systemd/", "/lib/sysusers.d/", "/lib/tmpfiles.d/")):
        inside = inside.replace(f"/{libdir}/", "/LIBDIR/", 1)
    return without_version("/usr" + inside)


def without_version(path):
    return re.sub(r"(libvuda\.so)\.\d+\.\d+\.\d+$", r"\1.VERSION", path)


def main():
    packages = {path.parent.name for path in LISTS.glob("*/files")}
    have, homeless = {}, set()
    if sys.argv[1:2] == ["debs"] and len(sys.argv) == 3:
        for deb in sorted(pathlib.Path(sys.argv[2]).glob("*.deb")):
            package, files = in_deb(str(deb))
            have[package] = files
    elif sys.argv[1:2] == ["tree"] and len(sys.argv) == 6:
        for package in sorted(packages):
            with tempfile.TemporaryDirectory() as folder:
                have[package] = installed(*sys.argv[2:], package, folder)
        with tempfile.TemporaryDirectory() as folder:
            homeless = installed(*sys.argv[2:], None, folder) - set.union(*have.values())
    else:
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 64
    faults = [f"there is no package {package}" for package in sorted(packages - set(have))]
    for package, files in sorted(have.items()):
        if package not in packages:
            faults.append(f"package {package} is not known: packaging/debian/{package}/files is missing")
            continue
        want = wanted(package)
        faults += [f"{package}: {name} is missing" for name in sorted(want - files)]
        faults += [f"{package}: {name} does not belong there" for name in sorted(files - want)]
    faults += [f"{name} is installed and in no package" for name in sorted(homeless) if not BENCHMARKS.match(name)]
    for fault in faults:
        print(fault)
    if not faults:
        print(f"{len(have)} packages with {sum(map(len, have.values()))} files: each has its own and no other")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
