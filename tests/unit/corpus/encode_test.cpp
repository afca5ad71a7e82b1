// Formats and masks: what of a record is trained, shown as text with the trained part in brackets.
#include <gtest/gtest.h>

#include "corpus/formats/encode.h"
#include "corpus/formats/format.h"
#include "unit/corpus/simple_language.h"

namespace lockstep::corpus {
namespace {

using config::RecordFormat;
using config::TrainOn;
using support::SimpleLanguage;

// "<user>Hi;<assistant>[Hello;]", | for the end token, ^ for the start token.
std::string marked(const Tokenized& whole) {
  std::string text;
  bool inside = false;
  for (std::size_t i = 0; i < whole.tokens.size(); ++i) {
    if ((whole.trained[i] != 0) != inside) text += inside ? "]" : "[";
    inside = whole.trained[i] != 0;
    text += whole.tokens[i] == SimpleLanguage::stop    ? '|'
            : whole.tokens[i] == SimpleLanguage::start ? '^'
                                                       : static_cast<char>(whole.tokens[i]);
  }
  return inside ? text + "]" : text;
}

std::string encode(const std::string& record, config::DataConfig data = {}, bool with_template = true, bool adds_start = false) {
  try {
    const Json json = Json::parse(record);
    const auto format = data.format == RecordFormat::automatic ? detect_format(json, data) : data.format;
    if (!format) return "unknown";
    return marked(Encoder(std::make_shared<SimpleLanguage>(with_template, adds_start), data, *format, 1000).encode(json));
  } catch (const Unreadable& problem) {
    return std::string("!") + problem.what();
  }
}

config::DataConfig with(TrainOn train_on) {
  config::DataConfig data;
  data.train_on = train_on;
  return data;
}

constexpr const char* chat =
    R"({"messages":[{"role":"system","content":"S"},{"role":"user","content":"Q1"},{"role":"assistant","content":"A1"},
  {"role":"user","content":"Q2"},{"role":"assistant","content":"A2"}]})";

TEST(RecordFormats, EachIsDetectedAndTrainedOnItsAnswers) {
  const std::pair<const char*, const char*> cases[] = {
      {chat, "<system>S;<user>Q1;<assistant>[A1;]<user>Q2;<assistant>[A2;]"},
      {R"({"conversations":[{"from":"human","value":"Q"},{"from":"gpt","value":"A"}],"system":"S"})", "<system>S;<user>Q;<assistant>[A;]"},
      {R"({"conversations":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}]})", "<user>Q;<assistant>[A;]"},
      {R"({"conversations":[{"from":"human","value":"Q"},{"from":"function_call","value":"{\"name\":\"f\",\"arguments\":{}}"},
           {"from":"observation","value":"R"},{"from":"gpt","value":"A"}],"tools":"[{\"name\":\"f\"}]"})",
       R"(tools[{"type":"function","function":{"name":"f"}}];<user>Q;<assistant>[[{"id":"call00001","type":"function",)"
       R"("function":{"name":"f","arguments":{}}}];]<tool>R;<assistant>[A;])"},
      {R"({"messages":"[{\"role\":\"user\",\"content\":\"Q\"},{\"role\":\"assistant\",\"content\":\"A\"}]"})", "<user>Q;<assistant>[A;]"},
      {R"({"instruction":"I","input":"X","output":"O"})", "<user>I\nX;<assistant>[O;]"},
      {R"({"instruction":"I","input":"","output":"O","system":"S"})", "<system>S;<user>I;<assistant>[O;]"},
      {R"({"instruction":"I","response":"O"})", "<user>I;<assistant>[O;]"},
      {R"({"instruction":"I","output":"O","history":[["q","a"]]})", "<user>q;<assistant>[a;]<user>I;<assistant>[O;]"},
      {R"({"prompt":"P","completion":"C"})", "<user>P;<assistant>[C;]"},
      {R"({"prompt":"P","response":"C","completion_time":3})", "<user>P;<assistant>[C;]"},
      {R"({"question":"P","answer":"C"})", "<user>P;<assistant>[C;]"},
      {R"({"input":"P","output":"C"})", "<user>P;<assistant>[C;]"},
      {R"({"prompt":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}],
           "completion":[{"role":"assistant","content":"d"}]})",
       "<user>a;<assistant>b;<user>c;<assistant>[d;]"},
      {R"({"text":"raw"})", "[raw|]"},
      {R"({"title":"x","body":"y"})", "unknown"},
  };
  for (const auto& [record, expected] : cases) EXPECT_EQ(encode(record), expected) << record;
}

TEST(RecordFormats, WithoutATemplateAPromptIsFollowedByItsAnswerAndTheEnd) {
  EXPECT_EQ(encode(R"({"prompt":"P:","completion":"C"})", {}, false), "P:[C|]");
  EXPECT_EQ(encode(R"({"prompt":"P:","completion":"C"})", {}, false, true), "^P:[C|]");
  EXPECT_EQ(encode(R"({"instruction":"I","input":"X","output":"O"})", {}, false),
            "### Instruction:\nI\n\n### Input:\nX\n\n### Response:\n[O|]");
  EXPECT_EQ(encode(R"({"text":"raw"})", {}, false, true), "[^raw|]");
  EXPECT_THROW(encode(chat, {}, false), base::UserError);
}

TEST(RecordFormats, WhatIsTrainedCanBeChosen) {
  EXPECT_EQ(encode(chat, with(TrainOn::last)), "<system>S;<user>Q1;<assistant>A1;<user>Q2;<assistant>[A2;]");
  EXPECT_EQ(encode(chat, with(TrainOn::all)), "[<system>S;<user>Q1;<assistant>A1;<user>Q2;<assistant>A2;]");
  EXPECT_EQ(encode(R"({"prompt":"P","completion":"C"})", with(TrainOn::all), false), "[PC|]");
  EXPECT_THROW(encode(R"({"text":"raw"})", with(TrainOn::responses)), base::UserError);
}

TEST(RecordFormats, WeightsOfMessagesAreHonouredAndNotShownToTheTemplate) {
  const auto weighted = [](const char* first, const char* second) {
    return fmt::format(R"({{"messages":[{{"role":"user","content":"Q","weight":0}},{{"role":"assistant","content":"A1",{}}},
                          {{"role":"assistant","content":"A2",{}}}]}})",
                       first, second);
  };
  EXPECT_EQ(encode(weighted(R"("weight":0)", R"("weight":1)")), "<user>Q;<assistant>A1;<assistant>[A2;]");
  EXPECT_EQ(encode(weighted(R"("train":true)", R"("train":false)")), "<user>Q;<assistant>[A1;]<assistant>A2;");
  EXPECT_EQ(encode(weighted(R"("weight":1)", R"("train":false)"), with(TrainOn::last)), "<user>Q;<assistant>[A1;]<assistant>A2;");
  EXPECT_EQ(encode(weighted(R"("weight":0.5)", R"("weight":1)")), "!has weight: 0.5 in message 2: it must be 0 or 1");
  EXPECT_EQ(encode(R"({"messages":[{"role":"user","content":"Q","weight":1}]})"),
            "!wants message 1 (role \"user\") trained: only what the assistant says is");
}

TEST(RecordFormats, FieldsAndSystemPromptFollowTheSettings) {
  config::DataConfig data;
  data.system_prompt = "Be kind";
  EXPECT_EQ(encode(chat, data), encode(chat));
  EXPECT_EQ(encode(R"({"prompt":"P","completion":"C"})", data), "<system>Be kind;<user>P;<assistant>[C;]");
  data = {};
  data.prompt_field = "ask";
  data.completion_field = "say";
  EXPECT_EQ(encode(R"({"ask":"P","say":"C","text":"t"})", data), "<user>P;<assistant>[C;]");
  data = {};
  data.text_field = "body";
  EXPECT_EQ(encode(R"({"body":"b","prompt":"P","completion":"C"})", data), "[b|]");
  data = {};
  data.messages_field = "dialog";
  EXPECT_EQ(encode(R"({"dialog":[{"from":"human","value":"Q"},{"from":"gpt","value":"A"}]})", data), "<user>Q;<assistant>[A;]");
}

TEST(RecordFormats, WhatIsMissingIsSaidByName) {
  const auto read_as = [](RecordFormat format, const char* record) {
    config::DataConfig data;
    data.format = format;
    return encode(record, data);
  };
  const struct {
    RecordFormat format;
    const char* record;
    const char* says;
  } cases[] = {
      {RecordFormat::messages, R"({"chat":[]})", "has no field 'messages' (it has chat)"},
      {RecordFormat::messages, R"({"messages":[]})", "has no messages in the field 'messages'"},
      {RecordFormat::messages, R"({"messages":"hello"})", "has text in the field 'messages', where a list of messages is needed"},
      {RecordFormat::messages, R"({"messages":[{"content":"x"}]})", "has no \"role\" in message 1"},
      {RecordFormat::messages, R"({"messages":[{"role":"user","content":"x"},{"role":"assistant"}]})", "has no \"content\" in message 2"},
      {RecordFormat::messages, R"({"messages":[{"role":"user","content":7}]})", "has number as \"content\" of message 1"},
      {RecordFormat::messages, R"({"messages":[{"role":"nobody","content":"x"}]})", "is refused by the chat template"},
      {RecordFormat::sharegpt, R"({"conversations":[{"from":"human"}]})", "has no \"from\" and \"value\""},
      {RecordFormat::sharegpt, R"({"conversations":[{"from":"alien","value":"x"}]})", "has \"from\": \"alien\" in message 1"},
      {RecordFormat::alpaca, R"({"instruction":"I"})", "has no field 'output' (it has instruction)"},
      {RecordFormat::prompt_completion, R"({"prompt":"I"})", "has no field 'completion' (it has prompt)"},
      {RecordFormat::prompt_completion, R"({"prompt":"I","completion":null})", "has null in the field 'completion', where text is needed"},
      {RecordFormat::text, R"({"texts":"I"})", "has no field 'text' (it has texts)"},
  };
  for (const auto& [format, record, says] : cases) {
    EXPECT_TRUE(read_as(format, record).starts_with(std::string("!") + says)) << read_as(format, record);
  }
}

// Tokens 0, 1, 2, ... of which those in [first, end) are trained.
Tokenized counting(std::size_t count, std::size_t first, std::size_t end) {
  Tokenized whole;
  for (std::size_t i = 0; i < count; ++i) {
    whole.tokens.push_back(static_cast<std::int32_t>(i));
    whole.spans.push_back({});
    whole.trained.push_back(i >= first && i < end ? 1 : 0);
  }
  return whole;
}

TEST(RecordTruncation, EachPolicyKeepsWhatItSays) {
  const auto fit = [](config::TooLong policy, RecordFormat format, const Tokenized& whole) {
    config::DataConfig data;
    data.too_long = policy;
    const Fitted fitted = Encoder(std::make_shared<SimpleLanguage>(), data, format, 10).fit(whole);
    std::string text = std::to_string(static_cast<int>(fitted.fate));
    for (const Piece& piece : fitted.pieces) text += fmt::format(" {}-{}", piece.begin, piece.end);
    return text;
  };
  const auto chats = RecordFormat::messages, raw = RecordFormat::text;
  using config::TooLong;
  const auto whole = static_cast<int>(Fate::whole), cut = static_cast<int>(Fate::cut), pieces = static_cast<int>(Fate::pieces);
  const auto too_long = static_cast<int>(Fate::too_long), untrained = static_cast<int>(Fate::untrained);
  EXPECT_EQ(fit(TooLong::cut, chats, counting(11, 0, 11)), fmt::format("{} 0-11", whole));
  EXPECT_EQ(fit(TooLong::cut, chats, counting(12, 5, 12)), fmt::format("{} 0-11", cut));
  EXPECT_EQ(fit(TooLong::cut_start, chats, counting(12, 5, 12)), fmt::format("{} 1-12", cut));
  EXPECT_EQ(fit(TooLong::skip, chats, counting(12, 5, 12)), fmt::format("{}", too_long));
  EXPECT_EQ(fit(TooLong::cut, chats, counting(30, 11, 30)), fmt::format("{}", untrained));
  EXPECT_EQ(fit(TooLong::cut, chats, counting(5, 0, 1)), fmt::format("{}", untrained));  // the first token is predicted from nothing
  EXPECT_EQ(fit(TooLong::cut, chats, counting(1, 0, 1)), fmt::format("{}", untrained));
  EXPECT_EQ(fit(TooLong::cut, raw, counting(32, 0, 32)), fmt::format("{} 0-11 10-21 20-31 30-32", pieces));
  EXPECT_EQ(fit(TooLong::cut, raw, counting(31, 0, 31)), fmt::format("{} 0-11 10-21 20-31", pieces));
  EXPECT_EQ(fit(TooLong::skip, raw, counting(32, 0, 32)), fmt::format("{}", too_long));
  EXPECT_THROW(fit(TooLong::error, chats, counting(12, 0, 12)), Refused);
}

}  // namespace
}  // namespace lockstep::corpus
