// Finds where JSON values end without reading them: files are cut into records on one thread, and read on many.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::corpus {

std::size_t skip_space(std::string_view text, std::size_t at);
// One past the value that starts at `at`; nothing where the text ends before it does.
std::optional<std::size_t> skip_value(std::string_view text, std::size_t at);

struct Member {
  std::string name;
  std::size_t value = 0;  // where its value starts
};
// The members of the object that starts at `at`, as far as they can be told apart.
std::vector<Member> members_of(std::string_view text, std::size_t at);

}  // namespace lockstep::corpus
