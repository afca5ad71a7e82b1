// Reads the file, finds out whose it is, and has its table walked.
#include "config/import/import.h"

#include "config/import/recognize.h"

namespace lockstep::config {

ImportedFile import_file(const std::filesystem::path& path, std::string_view program) {
  const YAML::Node file = parse_foreign(path);
  Importer importer(file, path, program.empty() ? told_by_keys(file, path.string()) : named_program(program));
  importer.run();
  return std::move(importer).result();
}

}  // namespace lockstep::config
