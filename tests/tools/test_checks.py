"""The checks of tools/ fail on what they forbid: each rule is broken once on made-up input."""
import importlib.util

import pytest

from support.lockstep import ROOT


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sizes = tool("check_sizes")


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
