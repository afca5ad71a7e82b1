// Replaced, not cut: a reader that follows the file sees by its identity that it must begin anew.
#include "journal/thinned_lines.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace lockstep::journal {

ThinnedLines::ThinnedLines(std::filesystem::path path, Options options)
    : path_(std::move(path)), options_(options), files_(options.files != nullptr ? *options.files : base::real_files()) {
  std::error_code error;
  if (std::filesystem::exists(path_, error)) {
    const std::string text = base::read_text(path_);
    count_ = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  open();
}

void ThinnedLines::open() {
  lines_ = std::make_unique<base::PatientWriter>(
      [this] {
        files_.create_directories(path_.parent_path());
        return files_.open_to_append(path_);
      },
      base::PatientWriter::Options{.capacity_bytes = 1u << 20});
}

void ThinnedLines::write(std::string_view line) {
  lines_->write(std::string(line) + "\n");
  if (++count_ > options_.most) thin();
}

void ThinnedLines::thin() {
  count_ = options_.most - options_.untouched / 2;  // where this fails, the next try is not at the next line
  try {
    std::vector<std::string> lines = base::split(base::read_text(path_), '\n');
    if (!lines.empty() && lines.back().empty()) lines.pop_back();
    const std::size_t older = lines.size() - std::min(lines.size(), options_.untouched);
    std::string kept;
    std::size_t count = 0;
    bool goes = false;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const bool may_go = i < older && !lines[i].starts_with("{\"event\":");
      if (may_go) goes = !goes;
      if (may_go && goes) continue;
      kept += lines[i] + "\n";
      ++count;
    }
    base::write_text_atomically(files_, path_, kept);
    count_ = count;
    open();
  } catch (const base::UserError&) {
    // A full disk: the file stays as it is for now.
  }
}

}  // namespace lockstep::journal
