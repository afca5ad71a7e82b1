"""An installed lockstep as people have it: no variable of the developer's, the set-up's LibTorch, and shipped run files made small."""
import os
import subprocess

from support.lockstep import ROOT

# A start of LibTorch is what is left of models/nano.yaml.
SMALL = {"LOCKSTEP_MODEL_NUM_LAYERS": "1", "LOCKSTEP_DATA_STORIES": "300", "LOCKSTEP_DATA_SEQ_LEN": "32", "LOCKSTEP_DATA_VALIDATION_FRACTION": "0",
         "LOCKSTEP_MONITOR_SAMPLE_TOKENS": "0", "LOCKSTEP_TRAINER_TARGET_DEVICE": "cpu", "LOCKSTEP_PARALLEL_THREADS": "1"}
SITE = next((ROOT / ".deps/lib").glob("python3*/site-packages"))


def plain_environment(**more):
    return {**{name: value for name, value in os.environ.items() if not name.startswith(("LOCKSTEP_", "PYTHON"))}, **more}


def run(*words, env=None, **options):
    """At most 300 s, for busy machines: nothing here promises a time."""
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300, env=plain_environment(**{**SMALL, **(env or {})}), **options)


def good(*words, **options):
    done = run(*words, **options)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout
