"""The checks of tools/ fail on what they forbid: each rule is broken once on made-up input."""
import importlib.util
import json
import re
import subprocess

import pytest

from support.lockstep import BUILD, ROOT


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sizes, includes, docs = tool("check_sizes"), tool("check_includes"), tool("wrap_docs")


def body(lines, indent="  "):
    return f"{indent}work();\n" * lines


def cpp_function(lines):
    return f"// A test.\nnamespace a::b {{\nint f(const char* text, int count = {{}}) noexcept {{\n{body(lines - 2)}}}\n}}  // namespace a::b\n"


@pytest.mark.parametrize("files,says", [
    ({"src/a.cpp": "//\n" * 401}, ["src/a.cpp: 401 lines, at most 400"]),
    ({"src/a.cpp": "//\n" * 400}, []),
    ({"src/a.cpp": cpp_function(81)}, ["src/a.cpp::f: 81 lines (from line 3), at most 80"]),
    ({"src/a.cpp": cpp_function(80)}, []),
    # A long lambda is part of the function around it; braces in text, raw text and comments are none.
    ({"src/a.cpp": 'int f() {\n  auto g = [] {\n' + body(80) + "  };\n}\n"}, ["src/a.cpp::f: 84 lines"]),
    ({"src/a.cpp": 'int f() {\n  a("}}}", \'}\', R"(}\n}})");  // }}}\n' + body(80) + "}\n"}, ["src/a.cpp::f: 84 lines"]),
    ({"src/a.cpp": "class A {\n  A(int x)\n      : b_{x}, c_(x) {\n" + body(80) + "  }\n};\n"}, ["src/a.cpp::A: 83 lines (from line 2)"]),
    ({"src/a.cu": "template <int N>\n__global__ void k(float* x) {\n" + body(80) + "}\n"}, ["src/a.cu::k: 83 lines (from line 1)"]),
    ({"tests/a.cpp": "TEST(Mesh, Splits) {\n" + body(80) + "}\n"}, ["tests/a.cpp::Mesh.Splits: 82 lines"]),
    # Tables and types are no functions.
    ({"src/a.cpp": "const Row kRows[] = {\n" + '    {f(1), "a"},\n' * 100 + "};\nstruct S {\n" + "  int a;\n" * 90 + "};\n"}, []),
    ({"src/a.py": "def f():\n" + "    work()\n" * 80}, ["src/a.py::f: 81 lines (from line 1)"]),
    ({"src/a.rs": "impl A {\n    pub fn f<'a>(x: &'a str) -> char {\n" + body(80) + "        '}'\n    }\n}\n"}, ["src/a.rs::f: 83 lines (from line 2)"]),
    # Text that ends in r is no raw text.
    ({"src/a.rs": 'fn f() {\n    a("for", "}");\n}\nfn g() {\n' + body(80) + "}\n"}, ["src/a.rs::g: 82 lines (from line 4)"]),
    ({f"src/room/{i}.h": "" for i in range(26)}, ["src/room: 26 files on one level, at most 25"]),
    ({f"src/room/{i % 2}/{i}.h": "" for i in range(50)}, []),
], ids=lambda value: "" if isinstance(value, list) else next(iter(value)))
def test_sizes(files, says):
    mistakes = sizes.check(files, {}, {}, {})
    assert len(mistakes) == len(says), mistakes
    for mistake, said in zip(mistakes, says):
        assert mistake.startswith(said)


@pytest.mark.parametrize("lines,says", [(90, []), (91, ["it had 90, and may only shrink"]), (85, []), (80, ["take it out of the table"])])
def test_what_is_over_the_limit_may_only_shrink(lines, says):
    mistakes = sizes.check({"src/a.cpp": cpp_function(lines)}, {}, {"src/a.cpp::f": (90, "a reason")}, {})
    assert [said in mistake for said, mistake in zip(says, mistakes)] == [True] * len(says) and len(mistakes) == len(says), mistakes


def test_a_table_names_nothing_in_vain():
    mistakes = sizes.check({"src/a.cpp": ""}, {"src/gone.cpp": (500, "")}, {"src/a.cpp::gone": (90, "")}, {"src/room": 30})
    assert len(mistakes) == 3 and all("not there any more" in mistake for mistake in mistakes)


ROOMS = "base:\ncomm/plain.h:\nlayout: comm/plain.h\ncomm: layout\nfront/app: comm\nrank/comm: comm\n"
FILES = {"base/a.h": [], "comm/plain.h": [], "layout/a.cpp": ["comm/plain.h", "base/a.h"], "comm/a.cpp": ["layout/a.h", "comm/deep/a.h"],
         "front/app/a.cpp": ["comm/a.h"], "rank/comm/a.cpp": ["comm/a.h"]}


def include_mistakes(files, table=ROOMS):
    return includes.check({name: "// A test.\n" + "".join(f'#include "{other}"\n' for other in others) for name, others in files.items()}, table)


def test_a_good_house_has_no_mistakes():
    assert include_mistakes(FILES) == []


@pytest.mark.parametrize("files,table,says", [
    ({"layout/b.cpp": ["comm/a.h"]}, ROOMS, "src/layout/b.cpp:2: layout may not include comm"),
    ({"cellar/a.cpp": []}, ROOMS, "src/cellar/a.cpp: no room of src/rooms.txt has this folder"),
    ({"rank/new/a.cpp": []}, ROOMS, "src/rank/new/a.cpp: no room"),
    ({"layout/b.cpp": ["cellar/a.h"]}, "cellar:\n" + ROOMS, "cellar has no files"),
    ({}, ROOMS.replace("rank/comm: comm", "rank/comm: comm layout"), "rank/comm may include layout, but does not"),
    ({}, ROOMS.replace("layout: comm/plain.h", "layout: comm/plain.h comm"), "layout may only name rooms above it, comm is none"),
    ({}, ROOMS.replace("rank/comm: comm", "rank/comm: comm front/app"), "front and rank are two programs"),
    ({"front/app/b.cpp": ["rank/comm/a.h"]}, ROOMS, "front/app may not include rank/comm"),
], ids=lambda value: "" if not isinstance(value, str) or value.startswith("base") else value[:40])
def test_include_directions(files, table, says):
    mistakes = include_mistakes({**FILES, **files}, table)
    assert any(says in mistake for mistake in mistakes), mistakes


@pytest.mark.parametrize("name,line,says", [
    ("base/b.cpp", "#include <ATen/core/Tensor.h>", "LibTorch does not belong here"),
    ("rank/comm/b.cpp", "#include <torch/torch.h>", "include the operators that are used"),
    ("base/b.cpp", "auto tree = Json::parse(text);", "JSON is read by base::parse_json"),
    ("base/b.cpp", "std::mutex mutex_;", "locks are base::Mutex"),
    ("base/b.cpp", "const std::lock_guard lock(mutex_);", "locks are base::Mutex"),
    ("base/b.cpp", "std::random_device random;", "ids are base::fresh_id"),
    ("base/b.cpp", "const std::string text((std::istreambuf_iterator<char>(file)), {});", "base::process_file"),
    ("base/b.cpp", "  static std::map<int, int> seen;", "variables that outlive their function are the process's"),
    ("base/b.cpp", "  static SlowFiles slow(order_->ms);", "variables that outlive"),
    ("base/b.cpp", "  thread_local auto& plans = *new Plans;", "variables that outlive"),
    ("base/b.cpp", '  ::setenv("A", "1", 0);', "the environment's variables are the process's"),
    ("base/b.cpp", "  std::signal(SIGINT, SIG_IGN);", "signals are the process's"),
    ("rank/comm/b.cpp", "  at::globalContext().setDeterministicAlgorithms(true, false);", "LibTorch's modes are the process's"),
])
def test_lines_that_no_room_may_have(name, line, says):
    files = {path: "// A test.\n" + "".join(f'#include "{other}"\n' for other in others) for path, others in FILES.items()}
    mistakes = includes.check({**files, name: f"// A test.\n{line}\n"}, ROOMS)
    assert len(mistakes) == 1 and says in mistakes[0], mistakes


def test_every_room_is_a_library():
    """CMake reads the same table: each room's library is in the build, linked to what the table names."""
    may, mistakes = includes.read_table((ROOT / "src/rooms.txt").read_text())
    assert not mistakes
    built = (BUILD / "build.ninja").read_text()
    for room in may:
        if not room.endswith(".h"):
            library = "liblockstep_" + room.removeprefix("rank/").replace("/", "_") + ".a"
            assert library in built, f"{room} has no library {library}"


def test_every_source_has_a_command_of_its_own():
    """Also where the files of a folder are compiled as one: clang-tidy and editors look at files."""
    done = subprocess.run([ROOT / "tools/compile_commands.py", BUILD], capture_output=True, text=True, check=True)
    commands = {entry["file"]: entry["command"] for entry in json.loads(done.stdout)}
    sources = [ROOT / name for name in subprocess.run(["git", "ls-files", "src/*.cpp"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()]
    assert sources
    for source in sources:
        if source.parent.name not in ("stub", "plugin"):  # of other builds
            assert f"-c {source}" in commands.get(str(source), ""), source


COUNTER = """// A test.
#include "base/mutex.h"
struct Counter {
  int get() { const lockstep::base::Lock lock(mutex); return count; }
  void wait() {
    lockstep::base::Lock lock(mutex);
    changed.wait(lock, [this]() LOCKSTEP_REQUIRES(mutex) { return count > 0; });
    lock.unlock();
    lock.lock();
    raise_it();
  }
  void raise_it() LOCKSTEP_REQUIRES(mutex) { ++count; }
  %s
  lockstep::base::Mutex mutex;
  lockstep::base::Condition changed;
  int count LOCKSTEP_GUARDED_BY(mutex) = 0;
};
"""


@pytest.mark.parametrize("wrong,says", [
    ("", []),
    ("int look() { return count; }\n"
     "  void late() { lockstep::base::Lock lock(mutex); lock.unlock(); ++count; }\n"
     "  void call() { raise_it(); }",
     ["reading variable 'count' requires holding mutex", "writing variable 'count' requires holding mutex", "calling function 'raise_it' requires"]),
], ids=["with locks", "without"])
def test_lint_sees_what_is_touched_without_its_lock(tmp_path, wrong, says):
    source = tmp_path / "counter.cpp"
    source.write_text(COUNTER % wrong)
    done = subprocess.run([ROOT / ".deps-test/bin/clang-tidy", "--quiet", f"--config-file={ROOT / '.clang-tidy'}", source, "--", "-std=c++20", f"-I{ROOT / 'src'}"],
                          capture_output=True, text=True, timeout=120)
    assert (done.returncode != 0) == bool(says), done.stdout
    for said in says:
        assert said in done.stdout


LONG = " ".join(["word"] * 40)


@pytest.mark.parametrize("text", ["# " + LONG, "| " + LONG + " |", "```\n" + LONG + "\n```", "    " + LONG, "<!-- " + LONG + " -->", "word " * 20])
def test_docs_that_stay_as_they_are(text):
    assert docs.wrapped(text) == text


@pytest.mark.parametrize("text,indent", [(LONG, ""), ("- " + LONG, "  "), ("12. " + LONG, "    "), (f"- short\n  {LONG}", "  ")])
def test_docs_wrap_at_120(text, indent):
    made = docs.wrapped(text)
    lines = made.split("\n")
    assert made.split() == text.split() and max(map(len, lines)) <= 120 and docs.wrapped(made) == made
    assert len(lines) > 1 and all(line.startswith(indent) for line in lines[1:])


def test_a_wrapped_line_begins_no_list():
    made = docs.wrapped(" ".join(["word"] * 24) + " - 1. # > " + LONG)
    assert not any(line.lstrip().startswith(("- ", "1. ", "# ", "> ")) for line in made.split("\n"))


def test_every_crate_builds_with_the_oldest_cargo_that_setup_takes():
    manifest = ROOT / "src/text/native/Cargo.toml"
    as_numbers = lambda version: tuple(map(int, version.split(".")))[:2]
    least = as_numbers(re.search(r"^least_cargo=(\S+)$", (ROOT / "tools/setup.sh").read_text(), re.M)[1])
    told = subprocess.run(["cargo", "metadata", "--locked", "--offline", "--filter-platform", "x86_64-unknown-linux-gnu", "--format-version", "1", "--manifest-path", manifest],
                          capture_output=True, text=True, timeout=60, check=True)
    newer = [f"{one['name']} {one['version']} wants rustc {one['rust_version']}" for one in json.loads(told.stdout)["packages"] if as_numbers(one["rust_version"] or "1.0") > least]
    assert not newer, newer
