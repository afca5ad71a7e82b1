#!/usr/bin/env python3
"""Lists what of others is inside the programs, with version and licence, and gathers the licences' texts.

Nothing is listed by hand: crates come from cargo's resolved tree, system libraries from the packages that tools/setup.sh installs for the
build, headers of NVIDIA's from the wheel that they came in, what the page is bundled from out of its imports and its lock file. LibTorch is not inside: programs find it where they run.
"""
import argparse
import dataclasses
import html
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NATIVE = ROOT / "src/text/native"
TEXT_FILES = re.compile(r"(licen[cs]e|copying|unlicense|notice)", re.I)
# Debian's words for what the world calls otherwise.
SPDX = {"Expat": "MIT", "X11": "MIT", "BSD-3-clause": "BSD-3-Clause", "Expat with embedded exception": "MIT with an exception for embedded code"}
TESTS_ONLY = {"libgtest-dev"}
IMPORTED = re.compile(r"""(?:from|import)\s+['"](@[^/'"]+/[^/'"]+|[a-z][^/'":]*)""")  # a package, not a file
BEHIND = {"svelte": ("clsx", "esm-env")}  # what Svelte's own runtime imports


@dataclasses.dataclass(frozen=True)
class Component:
    name: str
    version: str
    license: str
    texts: tuple[pathlib.Path, ...] = ()


def output_of(*command, cwd=None) -> str:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True, cwd=cwd).stdout


def texts_in(folder: pathlib.Path) -> tuple[pathlib.Path, ...]:
    """Licences beside a crate's Cargo.toml, and those of C sources that it carries."""
    return tuple(sorted(path for pattern in ("*", "*/*") for path in folder.glob(pattern) if path.is_file() and TEXT_FILES.match(path.name)))


def crates(cargo: str) -> list[Component]:
    """What is linked: neither build scripts nor macros, nor what only other platforms have. cargo has fetched it all to build."""
    tree = output_of(cargo, "tree", "--locked", "--offline", "--edges", "normal,no-proc-macro", "--target", "x86_64-unknown-linux-gnu", "--prefix", "none",
                     "--format", "{p}|{l}", cwd=NATIVE)
    found = set()
    for line in tree.splitlines():
        package, license = line.removesuffix(" (*)").split("|")
        name, version, *local = package.split(" ")
        if not local:
            found.add((name, version.removeprefix("v"), license.replace("/", " OR ")))
    registry = registries()
    return [Component(f"crate {name}", version, license,
                      next((texts_in(folder / f"{name}-{version}") for folder in registry if (folder / f"{name}-{version}").is_dir()), ()))
            for name, version, license in sorted(found)]


def registries() -> list[pathlib.Path]:
    home = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo"))
    return sorted((home / "registry/src").glob("*"))


def debian_license(copyright_file: pathlib.Path) -> str:
    """Of the stanza for all files."""
    try:
        text = copyright_file.read_text(errors="replace")
    except OSError:
        return "as its package says"
    found = re.search(r"^Files: \*\n(?:.+\n)*?License: (.+)$", text, re.M)
    return SPDX.get(found[1], found[1]) if found else "as its package says"


def debian_packages() -> list[Component]:
    listed = re.search(r"^packages=\((.*)\)$", (ROOT / "tools/setup.sh").read_text(), re.M)[1].split()
    components = []
    for package in sorted(name for name in listed if name.endswith("-dev") and name not in TESTS_ONLY):
        text = pathlib.Path("/usr/share/doc") / package / "copyright"
        try:
            version = output_of("dpkg-query", "-W", "-f=${Version}", package)
        except (OSError, subprocess.CalledProcessError):
            version = "of this system"
        components.append(Component(package, version, debian_license(text), (text,) if text.exists() else ()))
    return components


def compilers_own(compiler: str, cargo: str) -> list[Component]:
    version = output_of(compiler, "-dumpfullversion").strip()
    text = next((path for path in (pathlib.Path(f"/usr/share/doc/gcc-{version.split('.')[0]}-base/copyright"),) if path.exists()), None)
    rustc = pathlib.Path(cargo).with_name("rustc") if "/" in cargo else "rustc"
    rust = output_of(rustc, "--version").split()[1]
    # The crates that it is linked from are its authors' to list: rustup brings one page of them, Debian its copyright file.
    pages = [pathlib.Path(output_of(rustc, "--print", "sysroot").strip()) / "share/doc/rust/COPYRIGHT-library.html",
             *sorted(pathlib.Path("/usr/share/doc").glob("libstd-rust*/copyright"))]
    rust_text = next((path for path in pages if path.exists()), None)
    return [Component("libstdc++ and libgcc", version, "GPL-3.0-or-later WITH GCC-exception-3.1", (text,) if text else ()),
            Component("Rust's standard library", rust, "MIT OR Apache-2.0", (rust_text,) if rust_text else ())]


def cuda_headers(site_packages: pathlib.Path) -> list[Component]:
    folder = next(site_packages.glob("nvidia_cudnn_frontend-*.dist-info"))
    text = folder / "licenses/LICENSE.txt"
    first = text.read_text(errors="replace") if text.exists() else ""
    license = "MIT" if "Permission is hereby granted, free of charge" in first else "as its licence file says"
    return [Component("cudnn-frontend", folder.name.split("-")[1].removesuffix(".dist"), license, (text,) if text.exists() else ())]


def of_the_page(packages: pathlib.Path) -> list[Component]:
    names = {name for path in (ROOT / "web/src").rglob("*") if path.suffix in {".ts", ".js", ".svelte"} for name in IMPORTED.findall(path.read_text())}
    names |= {behind for name in names for behind in BEHIND.get(name, ())}
    lock = json.loads((ROOT / "web/package-lock.json").read_text())["packages"]
    found = {name: lock[f"node_modules/{name}"] for name in sorted(names) if f"node_modules/{name}" in lock}
    return [Component(f"npm {name}", entry["version"], entry.get("license", "as its package says"), texts_in(packages / name)) for name, entry in found.items()]


def header(components: list[Component]) -> str:
    rows = "\n".join(f'    {{"{one.name}", "{one.version}", "{one.license}"}},' for one in components)
    return ("// Made by tools/third_party.py.\n#pragma once\n\n#include <string_view>\n\nnamespace lockstep::app {\n\n"
            "struct ThirdParty {\n  std::string_view name, version, license;\n};\n"
            f"inline constexpr ThirdParty third_party[] = {{\n{rows}\n}};\n\n}}  // namespace lockstep::app\n")


def read_license(path: pathlib.Path) -> str:
    text = path.read_text(errors="replace")
    if path.suffix == ".html":
        text = html.unescape(re.sub(r"<[^>]+>", "", re.sub(r"(?s)<(style|head)>.*?</\1>", "", text)))
        text = re.sub(r"\n\s*\n\s*\n+", "\n\n", text)
    return text.strip()


def all_texts(components: list[Component]) -> str:
    """Each text once, under the names of all that it is the licence of."""
    owners, parts = {}, ["Lockstep is under the Apache License 2.0 (LICENSE). Inside its programs is software of others:\n"]
    for one in components:
        parts.append(f"  {one.name} {one.version}: {one.license}")
        for path in one.texts:
            owners.setdefault(read_license(path), []).append(f"{one.name} {one.version}")
    for text, names in owners.items():
        parts += ["", "=" * 100, ", ".join(dict.fromkeys(names)), "=" * 100, "", text]
    return "\n".join(parts) + "\n"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--cargo", default="cargo")
    arguments.add_argument("--compiler", default="g++")
    arguments.add_argument("--cuda", type=pathlib.Path, help="site-packages with what the CUDA plug-in is compiled with; none: it is not built")
    arguments.add_argument("--page", type=pathlib.Path, required=True, help="the node_modules that the page was built with, for the licences' texts")
    arguments.add_argument("--header", type=pathlib.Path, required=True)
    arguments.add_argument("--texts", type=pathlib.Path, required=True)
    options = arguments.parse_args()
    components = [*debian_packages(), *compilers_own(options.compiler, options.cargo), *(cuda_headers(options.cuda) if options.cuda else []),
                  *of_the_page(options.page), *crates(options.cargo)]
    for path, text in ((options.header, header(components)), (options.texts, all_texts(components))):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
