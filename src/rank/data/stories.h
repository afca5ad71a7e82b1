// The built-in corpus: simple English stories, made from lists and plots, so that a first run needs no download.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "rank/data/tokens.h"
#include "rank/data/vocabularies.h"

namespace lockstep::data {

// Makes stories; thread-safe. Story `number` is a function of (seed, number) alone.
class StoryMaker {
 public:
  struct Parts;
  StoryMaker();
  ~StoryMaker();
  std::shared_ptr<const StoryVocabulary> vocabulary() const;
  // Appends end_of_story and the story.
  void make(std::int64_t seed, std::int64_t number, std::vector<std::uint16_t>& tokens) const;

 private:
  std::unique_ptr<const Parts> parts_;
};

// `stories` stories one after the other, made here and now: 20,000 take about 0.1 s.
std::shared_ptr<const Tokens> story_tokens(const StoryMaker& maker, std::int64_t stories, std::int64_t seed);

}  // namespace lockstep::data
