// `lockstep data ...`: reads which of the data verbs is meant.
#include <fmt/format.h>

#include <cstdio>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "front/app/data/data_verbs.h"
#include "front/app/verbs.h"

namespace lockstep::app {
namespace {

constexpr const char* data_help = R"(lockstep data: prepares training data

  lockstep data inspect           what a file of records holds, and which of its tokens are trained
  lockstep data tokenize          text, JSONL or Parquet files to a .bin file of tokens
  lockstep data train-tokenizer   a tokenizer from text

  lockstep data VERB --help       the flags of a verb
)";

struct DataVerb {
  std::string_view name;
  int (*run)(std::span<const std::string>);
};
constexpr DataVerb verbs[] = {
    {"inspect", run_data_inspect},
    {"tokenize", run_data_tokenize},
    {"train-tokenizer", run_data_train_tokenizer},
};

}  // namespace

int run_data_verb(std::span<const std::string> args) {
  if (args.empty() || args[0] == "--help" || args[0] == "-h") {
    std::fputs(data_help, stdout);
    return args.empty() ? static_cast<int>(base::ExitCode::usage) : 0;
  }
  std::vector<std::string> names;
  for (const DataVerb& verb : verbs) {
    if (args[0] == verb.name) return verb.run(args.subspan(1));
    names.emplace_back(verb.name);
  }
  const auto near = base::nearest(args[0], names);
  throw base::usage_error("data", "'{}' is not a verb of `lockstep data`.{} There are {}.", args[0],
                          near ? fmt::format(" Did you mean {}?", *near) : "", base::join(names, ", "));
}

}  // namespace lockstep::app
