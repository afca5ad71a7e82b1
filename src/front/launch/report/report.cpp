// Chooses the cause and writes the report. Pure: tests feed it fabricated ends.
#include "front/launch/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "front/catalog/catalog.h"

namespace lockstep::launch {
namespace {

using journal::Phase;

bool contains_any(std::string_view text, std::initializer_list<std::string_view> needles) {
  const std::string small = base::lower(text);
  return std::any_of(needles.begin(), needles.end(), [&](std::string_view needle) { return small.find(needle) != std::string::npos; });
}

std::string all_text(const RankEnd& rank) {
  std::string text = rank.page ? rank.page->failure : "";
  for (const auto& line : rank.log) text += "\n" + line;
  return text;
}

// Left with code 0 while its page does not say that it was through.
bool left_early(const RankEnd& rank) {
  return rank.end && rank.end->clean() && !(rank.page && (rank.page->phase == Phase::done || rank.page->phase == Phase::finishing));
}

bool ended_badly(const RankEnd& rank) {
  return rank.dying || (rank.end && !rank.end->clean()) || left_early(rank) || (rank.page && !rank.page->failure.empty());
}

std::int64_t time_of(const RankEnd& rank) {
  return rank.page && rank.page->failure_ns > 0 && rank.page->failure_ns < rank.ended_ns ? rank.page->failure_ns : rank.ended_ns;
}

std::string place_in_run(const RankEnd& rank) {
  if (!rank.page) return rank.end && rank.end->exit_code == 127 ? "before it came to main()" : "before it could say what it was doing";
  const std::string phase(journal::describe(rank.page->phase));
  return rank.page->step > 0 ? fmt::format("in step {} while {}", rank.page->step, phase) : fmt::format("while {}", phase);
}

std::string how(const RankEnd& rank) {
  if (!rank.out_of_memory.empty())
    return fmt::format("killed, likely by the system's out-of-memory killer ({} says so)", rank.out_of_memory);
  if (left_early(rank)) return "left with exit code 0 before the end, as if it were done";
  if (!rank.end) return rank.dying ? "it is gone, and the kernel is still freeing its memory" : "failed";
  if (rank.elsewhere && !rank.told) return "its process is gone";
  return in_words(*rank.end);
}

// What its end tells of: its own words first, then how it ended. Null: nothing that is known.
const catalog::Entry* entry_for(const RankEnd& rank) {
  if (!rank.out_of_memory.empty()) return &catalog::known("LS-403");
  const std::string own = rank.page ? rank.page->failure : "";
  if (const catalog::Entry* entry = own.empty() ? nullptr : catalog::recognize(own)) return entry;
  if (rank.end && rank.end->signal == SIGKILL) return &catalog::known("LS-605");
  if (rank.end && rank.end->signal == SIGBUS) return &catalog::known("LS-404");
  if (rank.end && rank.end->signal == SIGILL) return &catalog::known("LS-108");
  if (const catalog::Entry* entry = catalog::recognize(all_text(rank))) return entry;
  if (rank.end && (rank.end->signal != 0 || rank.end->exit_code == static_cast<int>(base::ExitCode::bug))) return &catalog::known("LS-604");
  return left_early(rank) ? &catalog::known("LS-606") : nullptr;
}

int exit_code_of(const RankEnd& rank) {
  int code = static_cast<int>(base::ExitCode::run);
  if (rank.end && rank.end->signal == 0) code = rank.end->exit_code;
  if (!rank.end && rank.page) code = rank.page->failure_code;
  if (code == 127) return static_cast<int>(base::ExitCode::machine);  // the loader found no library
  const bool ours = (code >= 2 && code <= 6) || code == 70;
  return ours ? code : static_cast<int>(base::ExitCode::run);
}

void append_log(std::string& text, const RankEnd& rank) {
  if (rank.log.empty()) {
    text += fmt::format("  It wrote nothing to {}.\n", rank.log_file.string());
    return;
  }
  text += fmt::format("  Its last lines ({}):\n", rank.log_file.string());
  for (const auto& line : rank.log) text += "    | " + line + "\n";
}

void append_try(std::string& text, const std::vector<std::string>& lines) {
  for (std::size_t i = 0; i < lines.size(); ++i) text += (i == 0 ? "  What to try: " : "               ") + lines[i] + ".\n";
}

// The code closes every report: `lockstep explain`, the page and the docs know it.
void append_code(Report& report, std::string_view code) {
  report.code = code;
  report.text += fmt::format("  {}.\n", catalog::pointer_to(catalog::known(code)));
}

std::string others_line(const Failure& failure, std::size_t cause) {
  std::vector<int> follow;
  std::vector<int> ended;
  for (std::size_t i = 0; i < failure.ranks.size(); ++i) {
    if (i == cause) continue;
    (ended_badly(failure.ranks[i]) ? follow : ended).push_back(failure.ranks[i].rank);
  }
  std::string text;
  if (!follow.empty())
    text += fmt::format("  {} failed after it, as a consequence.\n",
                        follow.size() == 1 ? "Rank " + list_ranks(follow) : "Ranks " + list_ranks(follow));
  if (!ended.empty())
    text += fmt::format("  {} ended with it.\n",
                        ended.size() == 1 ? "Rank " + list_ranks(ended) + " was" : "Ranks " + list_ranks(ended) + " were");
  return text;
}

Report explain_mismatch(const Failure& failure) {
  Report report;
  report.headline = failure.mismatch + ".";
  report.text = "[launch] " + report.headline + "\n";
  report.text += "  Every rank must call the same operations in the same order with the same sizes; these could never have met.\n";
  append_try(report.text, {std::string(catalog::known("LS-309").fix)});
  append_code(report, "LS-309");
  return report;
}

Report explain_stall(const Failure& failure) {
  const Stall& stall = *failure.stall;
  Report report;
  report.headline = fmt::format("nothing has moved for {:.0f} s: {}.", stall.seconds, stall.text);
  report.text = "[launch] " + report.headline + "\n  The job was ended (monitor.stall_abort_seconds).\n";
  if (!stall.causes.empty()) {
    report.rank = stall.causes.front();
    report.text += fmt::format("  The others wait for {}.\n", name_ranks(stall.causes));
    for (const auto& rank : failure.ranks) {
      if (rank.rank == report.rank) append_log(report.text, rank);
    }
  }
  std::vector<std::string> lines = stall.advice;
  if (lines.empty()) lines.emplace_back(catalog::known("LS-310").fix);
  append_try(report.text, lines);
  append_code(report, "LS-310");
  return report;
}

// Ranks could not go on together, and by the time they were looked at again nothing showed why.
Report explain_nothing(const Failure& failure) {
  std::vector<journal::PageView> pages;
  for (const auto& rank : failure.ranks) {
    if (rank.page) pages.push_back(*rank.page);
  }
  Report report;
  report.headline = fmt::format("the ranks could not go on together, and none of them says why: {}",
                                pages.empty() ? "no rank has said anything yet" : who_does_what(pages, base::now_ns()));
  report.text = "[launch] " + report.headline + ".\n";
  append_try(report.text, {"the ranks' logs, in the run folder under ranks/, may say more; resuming from the newest checkpoint is safe"});
  append_code(report, "LS-606");
  return report;
}

Report explain_loss(const Failure& failure) {
  Report report;
  report.headline = failure.lost;
  report.text =
      fmt::format("[launch] {}.\n  The run cannot go on without its ranks, and was ended on every machine that is left.\n", failure.lost);
  append_try(report.text, {std::string(catalog::known("LS-316").fix)});
  append_code(report, "LS-316");
  return report;
}

}  // namespace

bool is_consequence(const RankEnd& rank) {
  // Signals other than an abort strike a rank for reasons of its own.
  if (rank.end && rank.end->signal != 0 && rank.end->signal != SIGABRT) return false;
  if (left_early(rank)) return false;
  const std::string text = rank.page && !rank.page->failure.empty() ? rank.page->failure : all_text(rank);
  if (text.starts_with("[comm] rank ")) return true;  // an operation that lost its partner, however the library words it
  return contains_any(
      text, {"connection closed by peer", "connection reset by peer", "connection refused", "broken pipe", "socket timeout", "remote peer",
             "ncclremoteerror", "nccl communicator was aborted", "recvvalue failed", "sendbytes failed", "recv failed", "failed to recv",
             "application timeout caused pair closure", "stopped waiting for the other ranks", "unexpected end of"});
}

std::optional<std::size_t> first_cause(const std::vector<RankEnd>& ranks) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (!ended_badly(ranks[i])) continue;
    const auto key = [&](std::size_t k) { return std::pair(is_consequence(ranks[k]), time_of(ranks[k])); };
    if (!best || key(i) < key(*best)) best = i;
  }
  return best;
}

Report explain(const Failure& failure) {
  if (!failure.mismatch.empty()) {
    const auto cause = first_cause(failure.ranks);
    // A rank that a signal or its own error struck is the better explanation, unless it merely failed in the mismatched operation.
    const bool own_error = cause && failure.ranks[*cause].end && failure.ranks[*cause].end->signal != 0 &&
                           !is_consequence(failure.ranks[*cause]) && failure.ranks[*cause].end->signal != SIGABRT;
    if (!own_error) return explain_mismatch(failure);
  }
  if (failure.stall) return explain_stall(failure);

  const auto cause = first_cause(failure.ranks);
  if (!failure.lost.empty() && (!cause || is_consequence(failure.ranks[*cause]))) return explain_loss(failure);
  if (!cause) return explain_nothing(failure);
  Report report;
  const RankEnd& rank = failure.ranks[*cause];
  report.rank = rank.rank;
  report.exit_code = exit_code_of(rank);
  const bool spoke = rank.page && !rank.page->failure.empty();
  const std::string who = failure.world_size == 1 ? "the worker"
                          : rank.machine.empty()  ? fmt::format("rank {} of {}", rank.rank, failure.world_size)
                                                  : fmt::format("rank {} of {}, on {},", rank.rank, failure.world_size, rank.machine);
  report.headline = fmt::format("{} {} {}: {}", who, failure.world_size > 1 ? "died first," : "died", place_in_run(rank), how(rank));
  // What a person can mend comes first, who stumbled over it second; for the rest it is the other way round.
  const bool to_mend = spoke && report.exit_code >= static_cast<int>(base::ExitCode::usage) &&
                       report.exit_code <= static_cast<int>(base::ExitCode::checkpoint);
  if (to_mend) {
    report.text = rank.page->failure + "\n  " + report.headline + ".\n";
  } else {
    report.text = "[launch] " + report.headline + ".\n";
    if (spoke) report.text += "  " + rank.page->failure + "\n";
  }
  append_log(report.text, rank);
  report.text += others_line(failure, *cause);
  if (const catalog::Entry* entry = entry_for(rank)) {
    append_try(report.text, {std::string(entry->fix)});
    append_code(report, entry->code);
  }
  return report;
}

}  // namespace lockstep::launch
