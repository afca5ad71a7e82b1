// Field by field, in the order of the structs.
#include "front/launch/meet/messages.h"

#include <cstring>

#include "front/launch/meet/pack.h"

namespace lockstep::launch::meet {
namespace {

using journal::Operation;
using journal::PageView;

int small(std::int64_t value) { return static_cast<int>(value); }

template <std::size_t n>
void pack_chars(Packer& packer, const char (&chars)[n]) {
  packer.text({chars, ::strnlen(chars, n)});
}

template <std::size_t n>
void unpack_chars(Unpacker& unpacker, char (&chars)[n]) {
  const std::string text = unpacker.text().substr(0, n - 1);
  std::memset(chars, 0, n);
  std::memcpy(chars, text.data(), text.size());
}

void pack_page(Packer& packer, const PageView& page, std::int64_t now_ns) {
  packer.number(page.rank).number(page.pid).number(page.alive ? 1 : 0).number(static_cast<std::int64_t>(page.process));
  packer.number(static_cast<std::int64_t>(page.phase)).number(page.step);
  for (const std::int64_t time : {page.process_since_ns, page.phase_since_ns, page.progress_ns, page.failure_ns})
    packer.number(time == 0 ? -1 : now_ns - time);
  packer.text(page.notice).number(page.notice_ns);  // only ever compared with the same rank's next one
  packer.text(page.failure).number(page.failure_code).number(static_cast<std::int64_t>(page.operations.size()));
  for (const Operation& operation : page.operations) {
    pack_chars(packer, operation.group);
    pack_chars(packer, operation.kind);
    pack_chars(packer, operation.what);
    packer.number(static_cast<std::int64_t>(operation.sequence)).number(static_cast<std::int64_t>(operation.bytes));
    packer.number(now_ns - operation.issued_ns).number(static_cast<std::int64_t>(operation.state));
  }
}

std::int64_t unpack_time(Unpacker& unpacker, std::int64_t now_ns) {
  const std::int64_t age = unpacker.number();
  return age < 0 ? 0 : now_ns - age;
}

PageView unpack_page(Unpacker& unpacker, std::int64_t now_ns) {
  PageView page;
  page.rank = static_cast<std::uint32_t>(unpacker.number());
  page.pid = static_cast<std::uint32_t>(unpacker.number());
  page.alive = unpacker.number() != 0;
  page.process = static_cast<journal::ProcessState>(unpacker.number());
  page.phase = static_cast<journal::Phase>(unpacker.number());
  page.step = unpacker.number();
  page.process_since_ns = unpack_time(unpacker, now_ns);
  page.phase_since_ns = unpack_time(unpacker, now_ns);
  page.progress_ns = unpack_time(unpacker, now_ns);
  page.failure_ns = unpack_time(unpacker, now_ns);
  page.notice = unpacker.text();
  page.notice_ns = unpacker.number();
  page.failure = unpacker.text();
  page.failure_code = small(unpacker.number());
  for (std::size_t left = unpacker.count(); left > 0; --left) {
    Operation operation{};
    unpack_chars(unpacker, operation.group);
    unpack_chars(unpacker, operation.kind);
    unpack_chars(unpacker, operation.what);
    operation.sequence = static_cast<std::uint64_t>(unpacker.number());
    operation.bytes = static_cast<std::uint64_t>(unpacker.number());
    operation.issued_ns = now_ns - unpacker.number();
    operation.state = static_cast<journal::OperationState>(unpacker.number());
    page.operations.push_back(operation);
  }
  return page;
}

void pack_end(Packer& packer, const RankEnd& rank, std::int64_t now_ns) {
  packer.number(rank.rank).number(rank.end ? 1 : 0).number(rank.end ? rank.end->exit_code : 0).number(rank.end ? rank.end->signal : 0);
  packer.number(now_ns - rank.ended_ns).number(rank.page ? 1 : 0);
  if (rank.page) pack_page(packer, *rank.page, now_ns);
  packer.number(static_cast<std::int64_t>(rank.log.size()));
  for (const std::string& line : rank.log) packer.text(line);
  packer.text(rank.log_file.string()).text(rank.out_of_memory).number(rank.dying ? 1 : 0).text(rank.machine);
}

RankEnd unpack_end(Unpacker& unpacker, std::int64_t now_ns) {
  RankEnd rank;
  rank.rank = small(unpacker.number());
  const bool ended = unpacker.number() != 0;
  const int code = small(unpacker.number()), signal = small(unpacker.number());
  if (ended) rank.end = End{code, signal};
  rank.ended_ns = now_ns - unpacker.number();
  if (unpacker.number() != 0) rank.page = unpack_page(unpacker, now_ns);
  for (std::size_t left = unpacker.count(); left > 0; --left) rank.log.push_back(unpacker.text());
  rank.log_file = unpacker.text();
  rank.out_of_memory = unpacker.text();
  rank.dying = unpacker.number() != 0;
  rank.machine = unpacker.text();
  return rank;
}

}  // namespace

std::string Welcome::pack() const { return Packer().text(file).take(); }

Welcome Welcome::unpack(std::string_view bytes) { return {.file = Unpacker(bytes).text()}; }

std::string Facts::pack() const {
  Packer packer;
  packer.number(node).number(nodes).number(ranks).text(host).number(static_cast<std::int64_t>(folders.size()));
  for (const SharedFolder& folder : folders) packer.text(folder.setting).text(folder.path).number(folder.seen ? 1 : 0);
  packer.number(static_cast<std::int64_t>(identity.size()));
  for (const journal::Fact& fact : identity) packer.text(fact.name).text(fact.value);
  return packer.text(remark).text(launcher).text(answers).take();
}

Facts Facts::unpack(std::string_view bytes) {
  Unpacker unpacker(bytes);
  Facts facts;
  facts.node = small(unpacker.number());
  facts.nodes = small(unpacker.number());
  facts.ranks = small(unpacker.number());
  facts.host = unpacker.text();
  for (std::size_t left = unpacker.count(); left > 0; --left) {
    SharedFolder folder;
    folder.setting = unpacker.text();
    folder.path = unpacker.text();
    folder.seen = unpacker.number() != 0;
    facts.folders.push_back(std::move(folder));
  }
  for (std::size_t left = unpacker.count(); left > 0; --left) {
    journal::Fact fact;
    fact.name = unpacker.text();
    fact.value = unpacker.text();
    facts.identity.push_back(std::move(fact));
  }
  facts.remark = unpacker.text();
  facts.launcher = unpacker.text();
  facts.answers = unpacker.text();
  return facts;
}

std::string Agreement::pack() const {
  return Packer().text(job).number(restart).number(world_size).number(first_rank).number(resume ? 1 : 0).text(bind_host).take();
}

Agreement Agreement::unpack(std::string_view bytes) {
  Unpacker unpacker(bytes);
  Agreement agreement;
  agreement.job = unpacker.text();
  agreement.restart = small(unpacker.number());
  agreement.world_size = small(unpacker.number());
  agreement.first_rank = small(unpacker.number());
  agreement.resume = unpacker.number() != 0;
  agreement.bind_host = unpacker.text();
  return agreement;
}

std::string Refusal::pack() const { return Packer().number(exit_code).text(text).take(); }

Refusal Refusal::unpack(std::string_view bytes) {
  Unpacker unpacker(bytes);
  Refusal refusal;
  refusal.exit_code = small(unpacker.number());
  refusal.text = unpacker.text();
  return refusal;
}

std::string Stop::pack() const { return Packer().number(signal).number(at_once ? 1 : 0).take(); }

Stop Stop::unpack(std::string_view bytes) {
  Unpacker unpacker(bytes);
  Stop stop;
  stop.signal = small(unpacker.number());
  stop.at_once = unpacker.number() != 0;
  return stop;
}

std::string Ending::pack() const {
  const Report& report = outcome.report;
  return Packer()
      .number(static_cast<std::int64_t>(outcome.kind))
      .number(outcome.signal)
      .number(outcome.trained ? 1 : 0)
      .number(report.exit_code)
      .number(report.rank.value_or(-1))
      .text(report.headline)
      .text(report.code)
      .text(report.text)
      .number(restarts ? 1 : 0)
      .take();
}

Ending Ending::unpack(std::string_view bytes) {
  Unpacker unpacker(bytes);
  Ending ending;
  ending.outcome.kind = static_cast<Outcome::Kind>(unpacker.number());
  ending.outcome.signal = small(unpacker.number());
  ending.outcome.trained = unpacker.number() != 0;
  Report& report = ending.outcome.report;
  report.exit_code = small(unpacker.number());
  if (const int rank = small(unpacker.number()); rank >= 0) report.rank = rank;
  report.headline = unpacker.text();
  report.code = unpacker.text();
  report.text = unpacker.text();
  ending.restarts = unpacker.number() != 0;
  return ending;
}

std::string pack(const Standing& standing, std::int64_t now_ns) {
  Packer packer;
  packer.number(static_cast<std::int64_t>(standing.pages.size()));
  for (const PageView& page : standing.pages) pack_page(packer, page, now_ns);
  packer.number(static_cast<std::int64_t>(standing.ends.size()));
  for (const RankEnd& rank : standing.ends) pack_end(packer, rank, now_ns);
  return packer.number(standing.all_ended ? 1 : 0).take();
}

Standing unpack_standing(std::string_view bytes, std::int64_t now_ns) {
  Unpacker unpacker(bytes);
  Standing standing;
  for (std::size_t left = unpacker.count(); left > 0; --left) standing.pages.push_back(unpack_page(unpacker, now_ns));
  for (std::size_t left = unpacker.count(); left > 0; --left) standing.ends.push_back(unpack_end(unpacker, now_ns));
  standing.all_ended = unpacker.number() != 0;
  return standing;
}

}  // namespace lockstep::launch::meet
