// The text that built-in stories are made of: lists of things, and plots with places for them.
#pragma once

#include <span>
#include <string_view>

namespace lockstep::corpus {

// A list from which each story picks one entry; {name} stands for it in a plot, the same one all through a story.
// {other name} is a second pick that differs from the first. Entries are separated by "|".
struct StoryList {
  std::string_view name;
  std::string_view entries;
};
std::span<const StoryList> story_lists();

// People of a story. {A} is the hero, {B} a friend, {P} the hero's mom or dad, {E} somebody old and wise. {A:he}, {A:him}, {A:his} are
// pronouns and {A:is} says what kind of being it is ("girl", "rabbit"). {P} reads "mom" (after "her"), {P:name} reads "Mom".
// A plot is sentences; [x|y] stands for one of x and y. The place for "a" or "an" is written "a".
struct StoryPlot {
  std::string_view beginning;  // how this plot needs its hero introduced
  std::string_view middle;
  std::string_view ending;
};
std::span<const StoryPlot> story_plots();

}  // namespace lockstep::corpus
