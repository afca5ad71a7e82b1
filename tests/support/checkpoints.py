"""Checkpoints changed by hand, with checksums that fit again."""
import json


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def seal(checkpoint, manifest):
    """Writes a manifest in its one spelling, with a checksum of itself."""
    manifest.pop("crc32c", None)
    manifest["crc32c"] = f"{crc32c(json.dumps(manifest, indent=1, ensure_ascii=False).encode()):08x}"
    (checkpoint / "manifest.json").write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")


def to_format_1(checkpoint):
    """As one rank wrote it before slices were known: one checksum a tensor."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    assert manifest["version"] == 2
    tensors = {}
    for piece in manifest["tensors"]:
        tensors.setdefault((piece["kind"], piece["name"]), []).append(piece)
    manifest["version"], manifest["tensors"] = 1, []
    for (kind, name), slices in tensors.items():
        first = slices[0]
        size = {"F32": 4, "BF16": 2, "U8": 1}[first["dtype"]] * sum(piece["count"] for piece in slices)
        data = (checkpoint / first["file"]).read_bytes()[first["offset"]:][:size]
        manifest["tensors"].append({"kind": kind, "name": name, "file": first["file"], "dtype": first["dtype"], "shape": first["shape"],
                                    "crc32c": f"{crc32c(data):08x}"})
    seal(checkpoint, manifest)
