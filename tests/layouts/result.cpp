// Numbers to files and back, and ranks' numbers into one result.
#include "layouts/result.h"

#include <fmt/format.h>

#include <cstring>
#include <fstream>
#include <stdexcept>
#include <type_traits>

namespace lockstep::layouts {
namespace {

// The same calls write and read.
class Stream {
 public:
  Stream(const std::filesystem::path& path, bool writes)
      : file_(path, std::ios::binary | (writes ? std::ios::out | std::ios::trunc : std::ios::in)), writes_(writes) {
    if (!file_) throw std::runtime_error("cannot open " + path.string());
  }

  template <typename T>
    requires std::is_arithmetic_v<T>
  void operator()(T& number) {
    bytes(&number, sizeof number);
  }
  void operator()(std::string& text) { list(text); }
  template <typename T>
  void operator()(std::vector<T>& values) {
    if constexpr (std::is_arithmetic_v<T>) {
      list(values);
    } else {
      std::size_t count = values.size();
      (*this)(count);
      values.resize(count);
      for (T& value : values) fields(value);
    }
  }

 private:
  void fields(Stretch& one) { (*this)(one.unit), (*this)(one.begin), (*this)(one.values); }
  void fields(Piece& one) { (*this)(one.name), (*this)(one.unit), (*this)(one.begin), (*this)(one.count); }
  template <typename List>
  void list(List& values) {
    std::size_t count = values.size();
    (*this)(count);
    values.resize(count);
    bytes(values.data(), count * sizeof(values[0]));
  }
  void bytes(void* data, std::size_t count) {
    writes_ ? static_cast<void>(file_.write(static_cast<const char*>(data), std::streamsize(count)))
            : static_cast<void>(file_.read(static_cast<char*>(data), std::streamsize(count)));
    if (!file_) throw std::runtime_error("a result is cut off");
  }

  std::fstream file_;
  bool writes_;
};

void pass(Stream& stream, RankResult& r) {
  stream(r.error), stream(r.losses), stream(r.norms), stream(r.eval_loss), stream(r.to_mean), stream(r.learning_rate);
  stream(r.max_norm), stream(r.on_a_gpu), stream(r.micro_batches), stream(r.traffic), stream(r.planned), stream(r.elements),
      stream(r.pieces);
  stream(r.gradients), stream(r.weights), stream(r.before), stream(r.after);
}

// Several ranks may hold the same numbers, which are the same bits then.
Result::Units put_together(const std::vector<RankResult>& ranks, std::vector<Stretch> RankResult::*part, const std::string& what,
                           std::vector<std::string>& wrong) {
  Result::Units units;
  std::vector<std::vector<bool>> known;
  for (const double elements : ranks.front().elements) {
    units.emplace_back(std::size_t(elements));
    known.emplace_back(std::size_t(elements));
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const Stretch& stretch : ranks[rank].*part) {
      std::vector<float>& unit = units.at(stretch.unit);
      for (std::size_t i = 0; i < stretch.values.size(); ++i) {
        const std::size_t at = std::size_t(stretch.begin) + i;
        if (at >= unit.size()) {
          wrong.push_back(fmt::format("{}: rank {} holds number {} of unit {}, which has {}", what, rank, at, stretch.unit, unit.size()));
          break;
        }
        if (known[stretch.unit][at] && std::memcmp(&unit[at], &stretch.values[i], sizeof(float)) != 0) {
          wrong.push_back(fmt::format("{}: number {} of unit {} is {} on rank {} and {} before it", what, at, stretch.unit,
                                      stretch.values[i], rank, unit[at]));
          break;
        }
        unit[at] = stretch.values[i];
        known[stretch.unit][at] = true;
      }
    }
  }
  for (std::size_t unit = 0; unit < known.size(); ++unit) {
    for (std::size_t at = 0; at < known[unit].size(); ++at) {
      if (known[unit][at]) continue;
      wrong.push_back(fmt::format("{}: no rank holds number {} of unit {}", what, at, unit));
      break;
    }
  }
  return units;
}

}  // namespace

void RankResult::write(const std::filesystem::path& path) const {
  Stream stream(path, /*writes=*/true);
  RankResult copy = *this;
  pass(stream, copy);
}

RankResult RankResult::read(const std::filesystem::path& path) {
  Stream stream(path, /*writes=*/false);
  RankResult result;
  pass(stream, result);
  return result;
}

Result Result::of(const std::vector<RankResult>& ranks, std::vector<std::string>& wrong) {
  const RankResult& first = ranks.front();
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].error.empty() != first.error.empty())
      wrong.push_back(fmt::format("rank 0 ended with \"{}\", rank {} with \"{}\"", first.error, rank, ranks[rank].error));
    if (ranks[rank].losses != first.losses || ranks[rank].norms != first.norms || ranks[rank].eval_loss != first.eval_loss)
      wrong.push_back(fmt::format("rank {} reports other losses or norms than rank 0", rank));
  }
  Result all;
  static_cast<Report&>(all) = first;
  if (!wrong.empty() || !first.error.empty()) return all;
  all.gradients = put_together(ranks, &RankResult::gradients, "gradients", wrong);
  all.weights = put_together(ranks, &RankResult::weights, "weights", wrong);
  if (first.before.empty()) return all;
  all.before = put_together(ranks, &RankResult::before, "weights before a step", wrong);
  all.after = put_together(ranks, &RankResult::after, "weights after a step", wrong);
  return all;
}

}  // namespace lockstep::layouts
