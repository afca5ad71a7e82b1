// How the tokens of a run read where no tokenizer is named.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "config/run_config.h"
#include "corpus/formats/language.h"
#include "support/temporary_folder.h"

namespace lockstep::corpus {
namespace {

namespace fs = std::filesystem;

// Puts the folder back that the tests were started in.
class StartedIn {
 public:
  explicit StartedIn(const fs::path& folder) { fs::current_path(folder); }
  ~StartedIn() { fs::current_path(before_); }

 private:
  fs::path before_ = fs::current_path();
};

TEST(LanguageOfData, ATokenizerInTheWorkingFolderIsNotTakenUnasked) {
  const support::TemporaryFolder folder;
  std::ofstream(folder.path() / "tokenizer.json") << "{}";
  const StartedIn here(folder.path());
  const config::ModelConfig model;
  for (const auto& [kind, text] :
       {std::pair{config::DataKind::random, "12"}, {config::DataKind::bin, "12"}, {config::DataKind::text, "\f"}}) {
    config::DataConfig data;
    data.kind = kind;
    EXPECT_EQ(language_of(data, model)->decode(std::vector<std::int32_t>{12}), text) << static_cast<int>(kind);
  }
}

}  // namespace
}  // namespace lockstep::corpus
