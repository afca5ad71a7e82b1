// A template's contract: answers and their bytes, and what it says where it cannot go on. Parity with Jinja2 is in tests/parity.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/chat_template.h"

namespace lockstep::text {
namespace {

using Json = nlohmann::ordered_json;

const Json talk = Json::parse(R"([{"role": "user", "content": "Hé?"}, {"role": "assistant", "content": "Ünd."}])");

TokenizerFiles files() { return {.eos = "</s>", .named = {{"eos_token", "</s>"}}, .end_texts = {"</s>"}, .special_texts = {"</s>"}}; }

std::string refused(const std::string& source, const Json& messages = talk, bool marked = false) {
  try {
    const ChatTemplate chat(source, files(), "here.jinja");
    if (marked) {
      chat.render_marked(messages);
    } else {
      chat.render(messages);
    }
  } catch (const base::UserError& error) {
    EXPECT_EQ(error.code(), base::ExitCode::data);
    return error.what();
  }
  return "nothing was refused";
}

TEST(ChatTemplate, SpansAreBytes) {
  const ChatTemplate chat(
      "{% for m in messages %}{{ m.role }}: {% generation %}{{ m.content ~ eos_token }}{% endgeneration %}\n{% endfor %}", files(),
      "here.jinja");
  const Rendered rendered = chat.render_marked(talk);
  ASSERT_EQ(rendered.answers.size(), 2u);
  EXPECT_EQ(rendered.text.substr(rendered.answers[1].begin, rendered.answers[1].end - rendered.answers[1].begin), "Ünd.</s>");
  EXPECT_EQ(rendered.text, chat.render(talk));
}

TEST(ChatTemplate, MarksDoNotStumbleOverOddCharacters) {
  const ChatTemplate chat("{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}.{% endfor %}", files(), "here.jinja");
  const Json odd = Json::array({{{"role", "assistant"}, {"content", "\uFDD0a\uFDD1\uFDD2"}}});
  const Rendered rendered = chat.render_marked(odd);
  EXPECT_EQ(rendered.text, "\uFDD0a\uFDD1\uFDD2.");
  ASSERT_EQ(rendered.answers.size(), 1u);
  EXPECT_EQ(rendered.answers[0].end, rendered.text.size() - 1);
}

TEST(ChatTemplate, MaskCoversTokensThatTouchAnAnswer) {
  const std::vector<TokenSpan> tokens = {{0, 2}, {2, 5}, {5, 5}, {5, 8}, {8, 9}, {9, 10}};
  using Mask = std::vector<std::uint8_t>;
  EXPECT_EQ(answer_mask(tokens, std::vector<TokenSpan>{{4, 8}}), (Mask{0, 1, 1, 1, 0, 0}));
  EXPECT_EQ(answer_mask(tokens, std::vector<TokenSpan>{{0, 1}, {9, 10}}), (Mask{1, 0, 0, 0, 0, 1}));
  EXPECT_EQ(answer_mask(tokens, {}), Mask(6));
}

TEST(ChatTemplate, SaysTheLineOfAMistake) {
  const std::string syntax = refused("first\n{% for m in messages %}\n{{ m.content \n{% endfor %}");
  EXPECT_NE(syntax.find("[text] here.jinja is no chat template that can be used: line "), std::string::npos) << syntax;
  const std::string undefined = refused("first\n\n{{ nobody.home }}");
  EXPECT_NE(undefined.find("here.jinja: line 3: "), std::string::npos) << undefined;
  EXPECT_NE(undefined.find("{{ nobody.home }}"), std::string::npos) << undefined;
  EXPECT_NE(refused("{{ messages|no_such_filter }}").find("no_such_filter"), std::string::npos);
  EXPECT_NE(refused("{% generation %}x").find("no chat template"), std::string::npos);
}

TEST(ChatTemplate, PassesOnWhatTheTemplateSays) {
  const std::string text = refused("{% if messages[0].role == 'user' %}\n{{ raise_exception('Only robots here!') }}\n{% endif %}");
  EXPECT_NE(text.find("here.jinja: line 2: the template says: Only robots here!"), std::string::npos) << text;
}

TEST(ChatTemplate, RefusesWhatIsNoConversation) {
  for (const char* messages : {"{}", "\"hello\"", "[\"hello\"]", "null"})
    EXPECT_NE(refused("x", Json::parse(messages)).find("a conversation is a list of messages"), std::string::npos) << messages;
  EXPECT_NE(refused("x", Json::array({{{"role", "user"}, {"content", "\xFF"}}})).find("not valid UTF-8"), std::string::npos);
}

TEST(ChatTemplate, SaysWhichAnswerCannotBeFound) {
  const std::string text = refused(
      "{% for m in messages %}{{ m.role if loop.last else m.content|upper }}{% endfor %}!",
      Json::parse(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b c"}, {"role": "user", "content": "d"}])"),
      true);
  EXPECT_NE(text.find("message 2 (assistant) cannot be found"), std::string::npos) << text;
  EXPECT_NE(text.find("{% generation %}"), std::string::npos) << text;
}

TEST(ChatTemplate, ARunawayTemplateEndsWithAnError) {
  EXPECT_NE(refused("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}").find("here.jinja: line 1"), std::string::npos);
}

// A template comes from elsewhere: whatever it does, rendering ends, in bounded memory, with words.
TEST(ChatTemplate, EndsWhateverItSays) {
  const auto times = [](const std::string& text, int count) {
    std::string all;
    for (int i = 0; i < count; ++i) all += text;
    return all;
  };
  const std::string begin = "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}", end = "{% endfor %}";
  const struct {
    std::string source;
    const char* says;
  } cases[] = {
      {"{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", "does not end"},
      {"{% set ns = namespace(x='0123456789') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", "512 MiB"},
      {"{{ 'a' * 10**12 }}", "512 MiB"},
      {"{{ 'a'.center(10**12) }}", "512 MiB"},
      {"{{ [1] * 10**12 }}", "512 MiB"},
      {"{{ [1]|batch(10**12, 'x')|list }}", "512 MiB"},
      {"{{ '%999999999s' % 'a' }}", "too large"},
      {"{{ 10**100000 }}", "larger than is supported"},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "calls itself"},
      {begin + "{% set ns.x = [ns.x] %}" + end, "500 levels"},
      {begin + "{% set ns.x = {'a': ns.x} %}" + end, "500 levels"},
      {begin + "{% set ns.x = namespace(x=ns.x) %}" + end, "500 levels"},
      {begin + "{% set ns.x = [ns.x]|select %}" + end, "500 levels"},
      {"{{ " + times("(", 200000) + "1" + times(")", 200000) + " }}", "nested deeper"},
      {"{{ " + times("[", 200000) + times("]", 200000) + " }}", "nested deeper"},
      {"{{ " + times("not ", 200000) + "1 }}", "nested deeper"},
      {times("{% if 1 %}", 200000), "nested deeper"},
      {"{{ 1" + times("+1", 200000) + " }}", "chain of more"},
      {"{{ ''" + times("|upper", 200000) + " }}", "chain of more"},
      {"{{ a" + times(".a", 200000) + " }}", "chain of more"},
  };
  for (const auto& [source, says] : cases) {
    const std::string words = refused(source);
    EXPECT_NE(words.find(says), std::string::npos) << source.substr(0, 80) << "\n" << words.substr(0, 200);
    EXPECT_LT(words.size(), 1000u);
  }
}

}  // namespace
}  // namespace lockstep::text
