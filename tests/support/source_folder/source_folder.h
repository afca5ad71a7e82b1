// Where the repository is, for tests that read its models, docs and tables.
#pragma once
#include <string>

namespace lockstep::test {
std::string source_folder();
}
