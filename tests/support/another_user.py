"""Programs of this checkout as a user who owns nothing of it, wherever it lies: a folder that mktemp has made is open to its owner alone."""
import os
import pathlib
import shlex
import shutil

from support.lockstep import ROOT

IMPOSSIBLE = os.getuid() != 0 or not shutil.which("unshare") or not shutil.which("setpriv")
AS_NOBODY = "setpriv --reuid=65534 --regid=65534 --clear-groups"


def words_before(*more: str) -> list[str]:
    """A command's prefix: in mounts of its own, after the shell commands `more`, as nobody."""
    return ["unshare", "--mount", "sh", "-c", " && ".join([*show_checkout(), *more, f'exec {AS_NOBODY} "$@"']), "sh"]


def show_checkout() -> list[str]:
    """Shell commands that put the outermost folder which others may not enter, the checkout itself or one around it, out of its way: what lies
    in the checkout is mounted into an open one. For mounts of one's own."""
    root = pathlib.Path(ROOT)
    hidden = [folder for folder in (root, *root.parents) if not folder.stat().st_mode & 0o001]
    if not hidden:
        return []
    checkout, around = shlex.quote(str(root)), shlex.quote(str(hidden[-1]))
    commands = [f"exec 9<{checkout}", f"mount -t tmpfs -o mode=755 none {around}", f"mkdir -p {checkout}"]
    for entry in root.iterdir():  # held by a descriptor meanwhile: the way to them is covered
        name = shlex.quote(entry.name)
        commands += [f"{'mkdir' if entry.is_dir() else 'touch'} {checkout}/{name}", f"mount -c --bind /proc/self/fd/9/{name} {checkout}/{name}"]
    return [*commands, "exec 9<&-"]
