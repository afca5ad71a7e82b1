// Mutation of good inputs, and words for whoever must find out why one of them ended the process.
#include "fuzz/fuzz.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "base/hash/hash64.h"
#include "base/text.h"
#include "corpus/files/files.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
// An uncaught exception and a hang are told like a bad access; what a thread that was given up still holds is no leak.
extern "C" const char* __asan_default_options() { return "handle_abort=1:detect_leaks=0:allocator_may_return_null=1"; }
#endif

namespace lockstep::fuzz {
namespace {

constexpr std::size_t longest_seed = 4096, longest_input = 16384;
constexpr unsigned longest_s = 20;  // for one input, on a busy machine

// What is being tried, where a signal handler finds it.
struct Trial {
  const Target* target = nullptr;
  std::uint64_t seed = 0, number = 0;
  std::string input;
};
Trial current;

void tell() {
  if (current.target == nullptr) return;
  const int name_size = static_cast<int>(current.target->name.size());
  std::fprintf(stderr, "\nfuzz: %.*s, seed %llu, input %llu, %zu bytes:\n", name_size, current.target->name.data(),
               static_cast<unsigned long long>(current.seed), static_cast<unsigned long long>(current.number), current.input.size());
  for (const char c : current.input) std::fprintf(stderr, "%02x", static_cast<unsigned char>(c));
  std::fprintf(stderr,
               "\nfuzz: again: LOCKSTEP_FUZZ_SEED=%llu LOCKSTEP_FUZZ_FIRST=%llu LOCKSTEP_FUZZ_RUNS=1 fuzz_tests "
               "--gtest_filter='*%.*s*'\n",
               static_cast<unsigned long long>(current.seed), static_cast<unsigned long long>(current.number), name_size,
               current.target->name.data());
  std::fflush(stderr);
}

void die(int signal) {
  if (signal == SIGALRM) std::fprintf(stderr, "\nfuzz: one input took more than %u s\n", longest_s);
  tell();
  std::signal(signal == SIGALRM ? SIGABRT : signal, SIG_DFL);
  ::raise(signal == SIGALRM ? SIGABRT : signal);
}

void tell_before_death() {
  std::signal(SIGALRM, die);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_set_death_callback(tell);
#else
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, die);
#endif
}

// SplitMix64: every input has its own stream.
class Random {
 public:
  explicit Random(std::uint64_t state) : state_(state) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : next() % limit; }

 private:
  std::uint64_t state_;
};

constexpr std::string_view numbers[] = {"0",    "-1",         "1e999", "1e308", "9223372036854775807", "18446744073709551616",
                                        "-0.0", "4294967296", "NaN"};

std::string piece_of(const std::string& text, Random& random) {
  const std::size_t begin = random.below(text.size()), length = 1 + random.below(std::min<std::size_t>(text.size() - begin, 64));
  return text.substr(begin, length);
}

std::string repeated(const std::string& text, std::size_t times) {
  std::string all;
  for (std::size_t i = 0; i < times && all.size() < longest_input; ++i) all += text;
  return all;
}

void mutate(std::string& input, const Target& target, Random& random) {
  if (input.empty()) input = target.seeds[random.below(target.seeds.size())];
  if (input.empty()) input = "x";
  const std::size_t at = random.below(input.size());
  const auto word = [&] { return std::string(target.words[random.below(target.words.size())]); };
  switch (random.below(12)) {
    case 0: input[at] = static_cast<char>(input[at] ^ (1 << random.below(8))); break;
    case 1: input[at] = static_cast<char>(random.next()); break;
    case 2: input.erase(at, 1 + random.below(16)); break;
    case 3: input.erase(at); break;
    case 4: input.insert(at, 1, static_cast<char>(random.next())); break;
    case 5: input.insert(at, word()); break;
    case 6: input.replace(at, random.below(12), word()); break;
    case 7: input.replace(at, random.below(12), numbers[random.below(std::size(numbers))]); break;
    case 8: input.insert(at, piece_of(input, random)); break;
    case 9: input.insert(at, piece_of(target.seeds[random.below(target.seeds.size())], random)); break;
    case 10: input.insert(at, repeated(random.below(2) == 0 ? word() : piece_of(input, random), 1 + random.below(1000))); break;
    default: std::swap(input[at], input[random.below(input.size())]); break;
  }
  if (input.size() > longest_input) input.resize(longest_input);
}

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace

std::string make_input(const Target& target, std::uint64_t seed, std::uint64_t number) {
  Random random(base::hash64(target.name) ^ (seed * 0x2545f4914f6cdd1dull) ^ (number * 0x9e3779b97f4a7c15ull));
  if (number < target.seeds.size()) return target.seeds[number];  // as they are, first
  std::string input = target.seeds[random.below(target.seeds.size())];
  for (std::size_t changes = 1 + random.below(1 + random.below(8)); changes > 0; --changes) mutate(input, target, random);
  return input;
}

void fuzz(const Target& target) {
  for (const std::string& seed : target.seeds) ASSERT_LE(seed.size(), longest_seed) << target.name;
  const std::uint64_t first = from_environment("LOCKSTEP_FUZZ_FIRST", 0), runs = from_environment("LOCKSTEP_FUZZ_RUNS", 10'000);
  current = {&target, from_environment("LOCKSTEP_FUZZ_SEED", 1), first, {}};
  tell_before_death();
  std::uint64_t refused = 0;
  for (; current.number < first + runs; ++current.number) {
    current.input = make_input(target, current.seed, current.number);
    ::alarm(longest_s);
    try {
      target.run(current.input);
    } catch (const base::UserError&) {
      ++refused;
    } catch (const corpus::Unreadable&) {
      ++refused;
    } catch (const std::exception& error) {
      tell();
      ::alarm(0);
      FAIL() << target.name << ": not an error for people: " << error.what();
    }
  }
  ::alarm(0);
  current = {};
  ::testing::Test::RecordProperty("refused", std::to_string(refused));
  EXPECT_GT(refused, runs / 20) << target.name << ": hardly any input was wrong; it tests nothing";
  if (runs > 1000) EXPECT_LT(refused, runs) << target.name << ": not even its seeds are good";
}

}  // namespace lockstep::fuzz
