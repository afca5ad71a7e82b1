// Tokenises all records of some files on all cores, in order.
#pragma once

#include <functional>
#include <memory>

#include "config/run_config.h"
#include "corpus/prepare/cache.h"
#include "corpus/formats/encode.h"
#include "corpus/files/files.h"
#include "corpus/formats/language.h"

namespace lockstep::corpus {

struct Job {
  const Files& files;
  const config::DataConfig& data;
  const text::Language& language;
  const Encoder* encoder = nullptr;  // null: the files are one text
  int threads = 1;
  std::function<void(double)> on_progress;
};

// The same file whatever the number of threads. The error thrown is the first in the order of records.
Counts tokenize(const Job& job, CacheWriter& writer);

}  // namespace lockstep::corpus
