// Stories from plots: plots are parsed once into trees of tokens, places and choices; a story is one walk through them.
#include <array>
#include <cctype>
#include <utility>

#include "base/hash/draws.h"
#include "base/error.h"
#include "base/text.h"
#include "corpus/stories/stories.h"
#include "corpus/stories/text.h"

namespace lockstep::corpus {
namespace {

enum class Form : std::uint8_t { name, he, him, his, is };
enum Who : std::uint8_t { hero, friend_, parent, elder, people };

// One step of a plot.
struct Node {
  enum class Kind : std::uint8_t { word, mark, opening_quote, closing_quote, possessive, list, person, choice };
  Kind kind;
  std::string text = {};                        // word, mark
  std::int32_t token = -1;                      // word, mark, quotes, possessive: known once the vocabulary is
  std::size_t list = 0;                         // list: which
  bool other = false;                           // list: the second pick
  Who who = hero;                               // person
  Form form = Form::name;                       // person
  std::vector<std::vector<Node>> options = {};  // choice
};
using Sequence = std::vector<Node>;
using Phrase = std::vector<std::int32_t>;

std::size_t list_index(std::string_view name) {
  const auto lists = story_lists();
  for (std::size_t i = 0; i < lists.size(); ++i) {
    if (lists[i].name == name) return i;
  }
  throw base::Bug(fmt::format("the stories have no list '{}'", name));
}

// Reads the notation of story_text.h.
class PlotParser {
 public:
  explicit PlotParser(std::string_view text) : text_(text) {}

  Sequence parse() {
    Sequence nodes = sequence();
    base::check(at_ == text_.size(), fmt::format("a plot ends where its brackets do: {}", text_.substr(at_)));
    return nodes;
  }

 private:
  Sequence sequence() {
    Sequence nodes;
    while (at_ < text_.size() && text_[at_] != '|' && text_[at_] != ']') {
      const char c = text_[at_];
      if (c == ' ') {
        ++at_;
      } else if (c == '[') {
        nodes.push_back(choice());
      } else if (c == '{') {
        nodes.push_back(place());
      } else if (c == '"') {
        ++at_;
        quoted_ = !quoted_;
        nodes.push_back({.kind = quoted_ ? Node::Kind::opening_quote : Node::Kind::closing_quote});
      } else if (text_.substr(at_).starts_with("'s")) {
        at_ += 2;
        nodes.push_back({.kind = Node::Kind::possessive});
      } else if (std::isalpha(static_cast<unsigned char>(c))) {
        nodes.push_back(word());
      } else {
        ++at_;
        nodes.push_back({.kind = Node::Kind::mark, .text = std::string(1, c)});
      }
    }
    return nodes;
  }

  Node choice() {
    Node node{.kind = Node::Kind::choice};
    const bool quoted = quoted_;
    do {
      ++at_;  // '[' or '|'
      quoted_ = quoted;
      node.options.push_back(sequence());
      base::check(at_ < text_.size(), "a choice in a plot is closed");
    } while (text_[at_] == '|');
    ++at_;  // ']'
    return node;
  }

  Node place() {
    const std::size_t end = text_.find('}', at_);
    base::check(end != std::string_view::npos, "a place in a plot is closed");
    std::string_view name = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    const auto colon = name.find(':');
    if (const auto who = std::string_view("ABPE").find(name[0]); who != std::string_view::npos && (name.size() == 1 || colon == 1)) {
      return {.kind = Node::Kind::person, .who = static_cast<Who>(who), .form = form(colon == 1 ? name.substr(2) : "", name[0] == 'P')};
    }
    const bool other = name.starts_with("other ");
    if (other) name.remove_prefix(6);
    return {.kind = Node::Kind::list, .list = list_index(name), .other = other};
  }

  // A parent's and an elder's plain form is what they are; everybody else's is the name.
  static Form form(std::string_view name, bool parent) {
    if (name == "he") return Form::he;
    if (name == "him") return Form::him;
    if (name == "his") return Form::his;
    if (name == "is" || (name.empty() && parent)) return Form::is;
    base::check(name.empty() || name == "name", fmt::format("the stories know the form '{}'", name));
    return Form::name;
  }

  Node word() {
    const std::size_t start = at_;
    while (at_ < text_.size() && (std::isalpha(static_cast<unsigned char>(text_[at_])) || text_[at_] == '\'')) ++at_;
    std::string word(text_.substr(start, at_ - start));
    if (word != "I") word[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(word[0])));
    return {.kind = Node::Kind::word, .text = std::move(word)};
  }

  std::string_view text_;
  std::size_t at_ = 0;
  bool quoted_ = false;
};

void collect_words(const Sequence& nodes, std::vector<std::string>& words) {
  for (const Node& node : nodes) {
    if (node.kind == Node::Kind::word) words.push_back(node.text);
    for (const Sequence& option : node.options) collect_words(option, words);
  }
}

void resolve(Sequence& nodes, const StoryVocabulary& vocabulary) {
  for (Node& node : nodes) {
    switch (node.kind) {
      case Node::Kind::word: node.token = vocabulary.word(node.text); break;
      case Node::Kind::mark: node.token = vocabulary.mark(node.text[0]); break;
      case Node::Kind::opening_quote: node.token = vocabulary.opening_quote(); break;
      case Node::Kind::closing_quote: node.token = vocabulary.closing_quote(); break;
      case Node::Kind::possessive: node.token = vocabulary.possessive(); break;
      default: break;
    }
    for (Sequence& option : node.options) resolve(option, vocabulary);
  }
}

Phrase phrase(std::string_view text, const StoryVocabulary& vocabulary) {
  Phrase tokens;
  for (const std::string& word : base::split(text, ' ')) tokens.push_back(vocabulary.word(word));
  return tokens;
}

}  // namespace

struct StoryMaker::Parts {
  struct Gender {
    Phrase he, him, his, child, parent, parent_name;
  };
  std::vector<Sequence> plots;
  std::shared_ptr<const StoryVocabulary> vocabulary;
  std::vector<std::vector<Phrase>> lists;
  std::array<Gender, 2> genders;
  std::array<std::size_t, 2> names{};  // the list of names of each gender
  std::size_t beings = 0, elders = 0;
  std::int32_t a = 0, an = 0;
};

namespace {

// One walk through one plot.
class Teller {
 public:
  Teller(const StoryMaker::Parts& parts, std::uint64_t key, std::vector<std::uint16_t>& tokens);
  void tell(const Sequence& nodes);
  const Sequence& pick_plot() { return parts_.plots[draws_.below(parts_.plots.size())]; }

 private:
  struct Person {
    std::array<const Phrase*, 5> forms;  // by Form
  };
  void put(std::int32_t token);
  void put(const Phrase& phrase) {
    for (const std::int32_t token : phrase) put(token);
  }
  Person person(const Phrase& name, const Phrase& is, std::size_t gender) const {
    const auto& words = parts_.genders[gender];
    return {{&name, &words.he, &words.him, &words.his, &is}};
  }
  // A child or an animal whose name is not `taken`.
  Person being(const Phrase* taken);
  const Phrase& pick(std::size_t list) { return parts_.lists[list][draws_.below(parts_.lists[list].size())]; }

  const StoryMaker::Parts& parts_;
  base::Draws draws_;
  std::vector<std::uint16_t>& tokens_;
  std::vector<std::array<const Phrase*, 2>> picks_;  // by list: the pick and the other pick
  std::array<Person, people> people_;
};

Teller::Teller(const StoryMaker::Parts& parts, std::uint64_t key, std::vector<std::uint16_t>& tokens)
    : parts_(parts), draws_(key), tokens_(tokens) {
  picks_.reserve(parts_.lists.size());
  for (const auto& list : parts_.lists) {
    const std::size_t first = draws_.below(list.size());
    const std::size_t second = (first + 1 + draws_.below(list.size() - 1)) % list.size();
    picks_.push_back({&list[first], &list[second]});
  }
  people_[hero] = being(nullptr);
  people_[friend_] = being(people_[hero].forms[0]);
  const std::size_t gender = draws_.below(2);
  people_[parent] = person(parts_.genders[gender].parent_name, parts_.genders[gender].parent, gender);
  const Phrase& old = pick(parts_.elders);
  people_[elder] = person(old, old, draws_.below(2));
}

Teller::Person Teller::being(const Phrase* taken) {
  const std::size_t gender = draws_.below(2);
  const Phrase* name = taken;
  while (name == taken) name = &pick(parts_.names[gender]);
  const bool child = draws_.below(5) < 3;
  return person(*name, child ? parts_.genders[gender].child : pick(parts_.beings), gender);
}

void Teller::put(std::int32_t token) {
  if (!tokens_.empty() && tokens_.back() == parts_.a && parts_.vocabulary->starts_with_vowel(token)) {
    tokens_.back() = static_cast<std::uint16_t>(parts_.an);
  }
  tokens_.push_back(static_cast<std::uint16_t>(token));
}

void Teller::tell(const Sequence& nodes) {
  for (const Node& node : nodes) {
    switch (node.kind) {
      case Node::Kind::list: put(*picks_[node.list][node.other]); break;
      case Node::Kind::person: put(*people_[node.who].forms[static_cast<std::size_t>(node.form)]); break;
      case Node::Kind::choice: tell(node.options[draws_.below(node.options.size())]); break;
      default: put(node.token);
    }
  }
}

}  // namespace

StoryMaker::StoryMaker() {
  auto parts = std::make_unique<Parts>();
  std::vector<std::string> words = {"a", "an", "he", "him", "his", "she", "her", "boy", "girl", "dad", "Dad", "mom", "Mom"};
  for (const StoryPlot& plot : story_plots()) {
    parts->plots.push_back(PlotParser(fmt::format("{}{}{}", plot.beginning, plot.middle, plot.ending)).parse());
    collect_words(parts->plots.back(), words);
  }
  for (const StoryList& list : story_lists()) {
    for (const std::string& entry : base::split(list.entries, '|')) {
      for (const std::string& word : base::split(entry, ' ')) words.push_back(word);
    }
  }
  parts->vocabulary = std::make_shared<StoryVocabulary>(std::move(words));
  const StoryVocabulary& vocabulary = *parts->vocabulary;
  base::check(vocabulary.size() <= 1024, "the stories' vocabulary fits into 1024 tokens");
  for (Sequence& plot : parts->plots) resolve(plot, vocabulary);
  for (const StoryList& list : story_lists()) {
    auto& phrases = parts->lists.emplace_back();
    for (const std::string& entry : base::split(list.entries, '|')) phrases.push_back(phrase(entry, vocabulary));
  }
  const auto gender = [&](const char* he, const char* him, const char* his, const char* child, const char* mom, const char* name) {
    return Parts::Gender{phrase(he, vocabulary),    phrase(him, vocabulary), phrase(his, vocabulary),
                         phrase(child, vocabulary), phrase(mom, vocabulary), phrase(name, vocabulary)};
  };
  parts->genders = {gender("she", "her", "her", "girl", "mom", "Mom"), gender("he", "him", "his", "boy", "dad", "Dad")};
  parts->names = {list_index("girl names"), list_index("boy names")};
  parts->beings = list_index("beings");
  parts->elders = list_index("elders");
  parts->a = vocabulary.word("a");
  parts->an = vocabulary.word("an");
  parts_ = std::move(parts);
}

StoryMaker::~StoryMaker() = default;

std::shared_ptr<const StoryVocabulary> StoryMaker::vocabulary() const { return parts_->vocabulary; }

void StoryMaker::make(std::int64_t seed, std::int64_t number, std::vector<std::uint16_t>& tokens) const {
  tokens.push_back(StoryVocabulary::end_of_story);
  Teller teller(*parts_, base::mix(static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(number)), tokens);
  teller.tell(teller.pick_plot());
}

std::vector<std::uint16_t> make_stories(const StoryMaker& maker, std::int64_t stories, std::int64_t seed) {
  std::vector<std::uint16_t> tokens;
  for (std::int64_t number = 0; number < stories; ++number) maker.make(seed, number, tokens);
  tokens.push_back(StoryVocabulary::end_of_story);
  return tokens;
}

}  // namespace lockstep::corpus
