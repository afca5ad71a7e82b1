"""Parquet as pyarrow writes it: every way to lay rows out gives pyarrow's own values, and damaged files an error."""
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

CALL = pa.struct([("name", pa.string()), ("arguments", pa.struct([("x", pa.int64()), ("y", pa.string())]))])
MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string()), ("tool_calls", pa.list_(CALL))])
SCHEMA = pa.schema([
    ("id", pa.int64()), ("text", pa.string()), ("flag", pa.bool_()), ("score", pa.float64()), ("messages", pa.list_(MESSAGE)),
    ("tags", pa.large_list(pa.large_string())), ("nested", pa.list_(pa.list_(pa.int32()))), ("small", pa.int8()), ("unsigned", pa.uint32()),
    ("parts", pa.struct([("a", pa.int16()), ("b", pa.struct([("c", pa.string()), ("d", pa.list_(pa.float32()))]))])), ("nothing", pa.null())])  # fmt: skip
CALLS = [None, [], [{"name": "f", "arguments": {"x": 1, "y": None}}, {"name": "g", "arguments": None}]]


def make_rows(count, seed=0):
    pick = random.Random(seed)
    return [{
        "id": i * (-3) ** (i % 5), "text": pick.choice(["a", 'é"\\\n\t\x01', "日本語" * 5, "", None, "x" * pick.randint(0, 300)]),
        "flag": pick.choice([True, False, None]), "score": pick.choice([0.5, -1e-7, None, 1e20, 3.0]),
        "messages": pick.choice([None, [], [{"role": "user", "content": f"q{i}", "tool_calls": None},
                                            {"role": "assistant", "content": pick.choice([None, "a"]), "tool_calls": pick.choice(CALLS)}]]),
        "tags": pick.choice([[], None, ["a", None, "b"], ["x"] * 5]), "nested": pick.choice([None, [[1, 2], [], None, [3, None]], []]),
        "small": pick.choice([1, -1, None]), "unsigned": pick.choice([2**31 + 5, 7]),
        "parts": pick.choice([None, {"a": 1, "b": {"c": "z", "d": [1.5]}}, {"a": None, "b": None}]), "nothing": None} for i in range(count)]  # fmt: skip


WAYS = {
    **{f"{compression}, dictionary {dictionary}, pages {version}, {size} rows a group":
       {"compression": compression, "use_dictionary": dictionary, "data_page_version": version, "row_group_size": size, "data_page_size": 20 * size}
       for compression in ("snappy", "zstd", "gzip", "none") for dictionary, version, size in ((True, "1.0", 70), (False, "2.0", 700))},
    "differences": {"use_dictionary": False, "column_encoding": {
        "id": "DELTA_BINARY_PACKED", "small": "DELTA_BINARY_PACKED", "text": "DELTA_LENGTH_BYTE_ARRAY", "score": "BYTE_STREAM_SPLIT"}},
    "prefixes": {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY", "id": "BYTE_STREAM_SPLIT", "flag": "RLE"}},
    "old names of lists": {"use_compliant_nested_type": False, "version": "1.0"},
}  # fmt: skip


def read(tool, path):
    answer = tool.ask("parquet", path=str(path))
    rows = [json.loads(line) for lines in answer.get("lines", []) for line in lines.rstrip("\n").split("\n")]
    return answer, rows


@pytest.mark.parametrize("way", WAYS)
def test_every_layout_gives_pyarrows_values(tool, tmp_path, way):
    table = pa.Table.from_pylist(make_rows(1000), schema=SCHEMA)
    pq.write_table(table, tmp_path / "rows.parquet", **WAYS[way])
    answer, rows = read(tool, tmp_path / "rows.parquet")
    assert answer.get("count") == 1000, answer
    assert rows == table.to_pylist()


def test_other_types_are_values_or_are_left_out(tool, tmp_path):
    table = pa.table({
        "words": pa.array(["a", "b", "a", None]).dictionary_encode(), "when": pa.array([0, 1, 2, 3], pa.timestamp("ms")),
        "image": pa.array([b"\xff\x00", b"\x89PNG\xff", None, b"\x80"], pa.binary()), "pair": pa.array([[1, 2]] * 4, pa.list_(pa.int8(), 2)),
        "map": pa.array([[("k", 1)], [], None, [("a", 2), ("b", None)]], pa.map_(pa.string(), pa.int32())),
        "numbered": pa.array([[(1, "x")]] * 4, pa.map_(pa.int32(), pa.string())), "view": pa.array(["v", None, "w", "long text that is not inlined"])})  # fmt: skip
    pq.write_table(table, tmp_path / "rows.parquet")
    _, rows = read(tool, tmp_path / "rows.parquet")
    assert [row["words"] for row in rows] == ["a", "b", "a", None]
    assert [row["when"] for row in rows] == [0, 1, 2, 3]
    assert rows[0]["image"] == {"bytes": 2}, "what is no text is not trained as text"
    assert [row["map"] for row in rows] == [{"k": 1}, {}, None, {"a": 2, "b": None}]
    assert rows[0]["numbered"] == [[1, "x"]] and rows[0]["pair"] == [1, 2]


@pytest.mark.parametrize(("compression", "named"), [("lz4", "LZ4"), ("brotli", "Brotli")])
def test_compression_that_is_not_read_is_named(tool, tmp_path, compression, named):
    pq.write_table(pa.table({"text": ["a"] * 9}), tmp_path / "rows.parquet", compression=compression)
    answer, _ = read(tool, tmp_path / "rows.parquet")
    assert named in answer["error"] and "Snappy" in answer["error"]


def test_empty_files_have_no_rows(tool, tmp_path):
    pq.write_table(pa.Table.from_pylist([], schema=SCHEMA), tmp_path / "rows.parquet")
    assert read(tool, tmp_path / "rows.parquet")[1] == []


def test_damaged_files_end_in_an_error_or_in_rows(tool, tmp_path):
    """Cut off and changed anywhere, the tool answers: no crash, no hang, no memory without end."""
    pq.write_table(pa.Table.from_pylist(make_rows(40), schema=SCHEMA), tmp_path / "good.parquet")
    good = (tmp_path / "good.parquet").read_bytes()
    pick, refused = random.Random(7), 0
    for number in range(600):
        bad = bytearray(good)
        if number % 3 == 0:
            bad = bad[: pick.randrange(len(bad))]
        else:
            first = 0 if number % 3 == 1 else max(0, len(bad) - 3000)  # the footer is at the end
            for _ in range(pick.randint(1, 6)):
                bad[pick.randrange(first, len(bad))] = pick.randrange(256)
        (tmp_path / "bad.parquet").write_bytes(bad)
        refused += "error" in tool.ask("parquet", path=str(tmp_path / "bad.parquet"))
    assert refused > 300
