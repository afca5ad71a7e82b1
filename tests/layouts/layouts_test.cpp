// However a model lies over ranks, it trains the same: a table of layouts, each compared with one rank, number by number.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <set>

#include "base/text.h"
#include "layouts/compare.h"
#include "layouts/pairs.h"
#include "layouts/walk.h"

namespace lockstep::layouts {
namespace {

Case sibling(Case one, const std::string& shard) {
  one["shard"] = shard;
  return one;
}

// Whose bits a case has to have: sums are made in the same order. Of more than two ranks NCCL adds up replicas' gradients in an order of
// its own, and in bf16.
std::optional<Case> same_bits_as(const Case& one, bool over_nccl) {
  const std::string& shard = one.at("shard");
  const bool replicas_too = !over_nccl || one.at("ranks") == "2";
  if (shard == "none" || shard == "hybrid") return std::nullopt;
  if (shard == "optimizer") return replicas_too ? std::optional(sibling(one, "none")) : std::nullopt;
  if (one.at("accumulation") == "1") return sibling(one, replicas_too ? "none" : "optimizer");
  return shard == "full" ? std::optional(sibling(one, "gradients")) : std::nullopt;
}

// Those that shall run or be refused, and one rank's for each.
std::vector<Job> with_references(const Table& table, const std::vector<Case>& cases) {
  std::vector<Job> all;
  std::set<Case> references;
  for (const Case& one : cases) {
    if (table.not_yet(one)) continue;
    all.push_back({one});
    if (!table.refused(one)) references.insert(Table::reference_of(one));
  }
  for (const Case& one : references) all.push_back({one});
  return all;
}

std::vector<std::string> judge(const Table& table, const Walked& walked, const std::map<Case, const Walked*>& by_case) {
  std::vector<std::string> wrong = walked.wrong;
  const std::string& error = walked.result.error;
  if (const auto refused = table.refused(walked.one)) {
    if (error.find(*refused) == std::string::npos) wrong.push_back(fmt::format("it is not refused: \"{}\"", error));
    return wrong;
  }
  if (!error.empty()) wrong.push_back(error);
  const Walked& reference = *by_case.at(Table::reference_of(walked.one));
  if (!wrong.empty() || !reference.result.error.empty()) return wrong;
  const auto add = [&](const std::vector<std::string>& more) { wrong.insert(wrong.end(), more.begin(), more.end()); };
  add(broken_promises(walked.result));
  if (&walked != &reference) add(differences(walked.result, reference.result, tolerance_of(walked.one.at("dtype"))));
  if (const auto other = same_bits_as(walked.one, walked.result.on_a_gpu)) {
    const auto found = by_case.find(*other);
    if (found != by_case.end()) {
      for (const std::string& difference : other_bits(walked.result, found->second->result))
        wrong.push_back(fmt::format("beside {}: {}", other->at("shard"), difference));
    }
  }
  return wrong;
}

// Returns how many cases are wrong.
std::size_t expect_all_right(const Table& table, const std::vector<Walked>& walked) {
  std::map<Case, const Walked*> by_case;
  for (const Walked& one : walked) by_case[one.one] = &one;
  std::size_t red = 0;
  for (const Walked& one : walked) {
    const std::vector<std::string> wrong = judge(table, one, by_case);
    if (wrong.empty()) continue;
    ++red;
    ADD_FAILURE() << to_text(one.one) << "\n  " << base::join(wrong, "\n  ");
  }
  return red;
}

// LOCKSTEP_LAYOUT_ROWS asks for so many rows beyond those in which all pairs meet, LOCKSTEP_LAYOUT_SEED for other ones.
std::size_t asked_for(const char* name, std::size_t otherwise) {
  const char* asked = std::getenv(name);
  return asked == nullptr ? otherwise : std::stoul(asked);
}

TEST(Layouts, EveryLayoutTrainsAsOneRankDoes) {
  const Table table = Table::read();
  const std::size_t more = asked_for("LOCKSTEP_LAYOUT_ROWS", 0);
  const std::vector<Case> cases = table.cases(more, asked_for("LOCKSTEP_LAYOUT_SEED", 1));
  // Cases of one walk, which has a deadline, and whose results are kept at a time: of all pairs, all.
  const std::size_t at_once = more == 0 ? 250 : 100;
  const std::size_t shards = table.columns().back().values.size();
  std::size_t done = 0, red = 0, deep = 0, open = 0;
  for (std::size_t first = 0; first < cases.size(); first += at_once - at_once % shards) {
    const auto begin = cases.begin() + std::ptrdiff_t(first);
    const std::vector<Case> some(begin, begin + std::ptrdiff_t(std::min(at_once - at_once % shards, cases.size() - first)));
    const std::vector<Walked> walked = walk(table, with_references(table, some));
    red += expect_all_right(table, walked);
    for (const Case& one : some) {
      done += !table.not_yet(one);
      open += table.not_yet(one).has_value();
      deep += !table.not_yet(one) && table.off_default(one) >= 3;
    }
    std::cout << fmt::format("{} of {} cases: {} wrong, {} with three settings off their default, {} that do not work yet", done + open,
                             cases.size(), red, deep, open)
              << std::endl;
  }
  EXPECT_GE(done, 120u);
  EXPECT_GE(deep, 20u);
}

// Small cases of all that can be broken, for which all is well where nothing is.
Case breakable(const std::string& shard, const std::string& training) {
  return {{"ranks", shard == "hybrid" ? "4" : "2"},
          {"accumulation", "1"},
          {"training", training},
          {"optimizer", "adamw"},
          {"model and data", "tied head"},
          {"dtype", "f32"},
          {"recompute", "auto"},
          {"sums over ranks", "as weights"},
          {"memory", "plenty"},
          {"shard", shard}};
}

Case breakable(Break rule) {
  return breakable(rule == Break::count_a_slice_twice ? "hybrid" : "full", rule == Break::forget_the_last_bytes ? "DoRA" : "full");
}

TEST(Layouts, ABrokenRuleShows) {
  const Table table = Table::read();
  std::vector<Job> jobs;
  for (const char* training : {"full", "DoRA"}) {
    jobs.push_back({Table::reference_of(breakable("full", training))});
    for (const char* shard : {"full", "hybrid"}) jobs.push_back({breakable(shard, training)});
  }
  for (const Break rule :
       {Break::skip_a_reduction, Break::scale_by_ranks, Break::drop_the_tied_gradient, Break::pad_with_garbage, Break::count_a_slice_twice,
        Break::shift_a_slice, Break::use_a_stale_slot, Break::gather_before_update, Break::forget_the_last_bytes})
    jobs.push_back({breakable(rule), rule});
  const std::vector<Walked> walked = walk(table, jobs);
  std::map<Case, const Walked*> by_case;
  for (const Walked& one : walked)
    if (one.rule == Break::none) by_case[one.one] = &one;
  for (const Walked& one : walked) {
    EXPECT_EQ(one.result.error, "") << name_of(one.rule);
    const std::vector<std::string> wrong = judge(table, one, by_case);
    std::cout << name_of(one.rule) << ": " << base::join(wrong, "; ") << std::endl;
    EXPECT_EQ(wrong.empty(), one.rule == Break::none) << name_of(one.rule);
  }
}

// A step has its first micro-batch, others and the last: each is a recording of its own, and begins where the one before ended.
TEST(Layouts, RecordedMicroStepsGiveTheSameBits) {
  const Table table = Table::read();
  std::vector<Job> jobs;
  for (const char* shard : {"optimizer", "gradients", "full", "hybrid"}) {
    for (const char* training : {"full", "DoRA"}) {
      for (const char* accumulation : {"1", "3", "4"}) {
        Case one = breakable(shard, training);
        one["accumulation"] = accumulation;
        if (table.not_yet(one)) continue;
        jobs.push_back({one});
        jobs.push_back({one, Break::nothing_but_replay});
      }
    }
  }
  const std::vector<Walked> walked = walk(table, jobs);
  for (std::size_t i = 0; i < walked.size(); i += 2) {
    const Result &plain = walked[i].result, &replayed = walked[i + 1].result;
    EXPECT_EQ(replayed.error, "") << to_text(walked[i].one);
    EXPECT_EQ(replayed.losses, plain.losses) << to_text(walked[i].one);
    EXPECT_EQ(replayed.norms, plain.norms) << to_text(walked[i].one);
    EXPECT_EQ(replayed.eval_loss, plain.eval_loss) << to_text(walked[i].one);
    EXPECT_EQ(replayed.traffic, plain.traffic) << to_text(walked[i].one);
  }
}

// On two ranks the first micro-batch is of twelve samples, on four of six; halves do not fit either.
TEST(Layouts, ATrialThatRunsOutOfMemoryLeavesNothingBehind) {
  const Table table = Table::read();
  std::vector<Job> jobs;
  for (const char* training : {"full", "DoRA"}) {
    jobs.push_back({Table::reference_of(breakable("full", training))});
    for (const char* shard : {"optimizer", "gradients", "full", "hybrid"})
      jobs.push_back({breakable(shard, training), Break::nothing_but_short});
  }
  const std::vector<Walked> walked = walk(table, jobs);
  for (std::size_t i = 0; i < walked.size(); ++i) {
    const Walked &one = walked[i], &reference = walked[i < walked.size() / 2 ? 0 : walked.size() / 2];
    EXPECT_EQ(one.result.error, "") << to_text(one.one);
    EXPECT_EQ(broken_promises(one.result), std::vector<std::string>{}) << to_text(one.one);
    EXPECT_EQ(differences(one.result, reference.result, tolerance_of("f32")), std::vector<std::string>{}) << to_text(one.one);
    EXPECT_EQ(one.result.micro_batches, one.rule == Break::none ? 1 : ranks_of(one.one) == 2 ? 4 : 6) << to_text(one.one);
  }
}

// Of all pairs those in bf16 that two or four ranks train, two rows of three.
std::vector<Case> cases_for_a_gpu(const Table& table) {
  std::vector<Case> cases;
  int rows = 0;
  for (const Case& one : table.cases()) {
    if (one.at("dtype") != "bf16" || (one.at("ranks") != "2" && one.at("ranks") != "4")) continue;
    if (one.at("shard") == "none") ++rows;
    if (rows % 3 != 0) cases.push_back(one);
  }
  return cases;
}

TEST(Layouts, OnAGpuTooOverNccl) {
  if (std::getenv("LOCKSTEP_TEST_DEVICE") == nullptr) GTEST_SKIP() << "needs a GPU";
  const Table table = Table::read();
  const std::vector<Case> cases = cases_for_a_gpu(table);
  std::vector<Job> jobs = with_references(table, cases);
  const std::size_t plain = jobs.size();
  for (const Case& one : cases)
    if (one.at("model and data") != "packed records") jobs.push_back({one, Break::nothing_but_replay});
  std::vector<Walked> walked = walk(table, jobs, /*ranks=*/4);
  std::map<Case, const Result*> by_case;
  for (std::size_t i = 0; i < plain; ++i) by_case[walked[i].one] = &walked[i].result;
  for (std::size_t i = plain; i < walked.size(); ++i) {
    EXPECT_EQ(walked[i].result.error, "") << to_text(walked[i].one);
    EXPECT_EQ(other_bits(walked[i].result, *by_case.at(walked[i].one)), std::vector<std::string>{}) << "graphs: " << to_text(walked[i].one);
  }
  const std::size_t recorded = walked.size() - plain;
  walked.resize(plain);
  const std::size_t red = expect_all_right(table, walked);
  std::cout << fmt::format("{} cases over NCCL, {} wrong; {} of them recorded too", cases.size(), red, recorded) << std::endl;
  EXPECT_GE(cases.size(), 24u);
}

}  // namespace
}  // namespace lockstep::layouts
