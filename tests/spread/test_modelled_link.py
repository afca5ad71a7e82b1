"""`lockstep bench step --link`: one rank of many, the others and their links modelled. No time is judged."""
import pytest

from e2e.test_bench import assert_spread, call, lines_of


@pytest.mark.parametrize("ranks,link,settings", [(8, "infinite", ["parallel.shard=full"]), (8, "nvlink8", ["parallel.shard=optimizer"]), (2, "pcie4x16", []),
                                                 (32, "nvlink8+ib400", ["parallel.shard=full", "parallel.replicate=4"])])
def test_a_rank_of_many_behind_a_modelled_link(ranks, link, settings):
    step = lines_of("bench", "step", "--model", "nano", "--seq", 16, "--batch", 2, "--steps", 2, "--warm-up", 1, "--device", "cpu", "--json", "--ranks", ranks, "--link", link,
                    *settings)[0]
    assert step["ranks"] == ranks and f"one of {ranks} ranks, the others and their links modelled: {link}" in step["modelled"]
    assert ("between machines of 8" in step["modelled"]) == (ranks > 8) and ("no time at all" in step["modelled"]) == (link == "infinite")
    assert_spread(step["step_seconds"])


@pytest.mark.parametrize("words,expected", [(["--ranks", 8], "go together"), (["--link", "nvlink8"], "go together"), (["--ranks", 8, "--link", "nvlnk"], "Did you mean nvlink"),
                                            (["--ranks", 3, "--link", "infinite", "parallel.shard=full", "parallel.replicate=2"], "2 groups of ranks cannot be made of 3 ranks")])
def test_links_that_cannot_be_modelled(words, expected):
    done = call("bench", "step", "--model", "nano", "--device", "cpu", *words)
    assert done.returncode == 2 and expected in done.stderr, done.stderr
