#!/usr/bin/env python3
"""Makes one C++ file of a built page: embed_page.py DIST OUT.cpp. The bytes come in by .incbin, so compiling it takes no time."""
import gzip
import pathlib
import sys

TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".svg": "image/svg+xml", ".json": "application/json", ".png": "image/png", ".ico": "image/x-icon"}
HEAD = """// Made by tools/embed_page.py.
#include "front/serve/embedded.h"

"""


def included(name: str, path: pathlib.Path) -> str:
    return (f'asm(".section .rodata\\n.balign 16\\n{name}:\\n.incbin \\"{path}\\"\\n{name}_end:\\n.byte 0\\n.previous\\n");\n'
            f"extern \"C\" const char {name}[], {name}_end[];\n")


def main() -> None:
    dist, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    packed = out.parent / "packed"
    packed.mkdir(exist_ok=True)
    text, rows = HEAD, []
    for number, file in enumerate(sorted(path for path in dist.rglob("*") if path.is_file())):
        squeezed = packed / f"{number}.gz"
        squeezed.write_bytes(gzip.compress(file.read_bytes(), 9, mtime=0))
        text += included(f"lockstep_page_{number}", file) + included(f"lockstep_page_{number}_gz", squeezed)
        name = "/" + file.relative_to(dist).as_posix()
        lasts = "true" if name.startswith("/assets/") else "false"
        span = "{{{0}, static_cast<std::size_t>({0}_end - {0})}}"
        rows.append(f'      {{"{name}", "{TYPES.get(file.suffix, "application/octet-stream")}", {span.format(f"lockstep_page_{number}")}, '
                    f'{span.format(f"lockstep_page_{number}_gz")}, {lasts}}},\n')
    text += ("\nnamespace lockstep::serve {\n\nstd::span<const Asset> embedded_assets() {\n  static const Asset all[] = {\n" + "".join(rows)
             + "  };\n  return all;\n}\n\n}  // namespace lockstep::serve\n")
    out.write_text(text)


if __name__ == "__main__":
    main()
