// For parity tests: answers JSON lines on standard input with JSON lines on standard output, each a call of src/text.
#include <nlohmann/json.hpp>

#include <exception>
#include <iostream>
#include <map>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "base/python_regex.h"
#include "text/chat_template.h"
#include "text/parquet.h"
#include "text/tokenizer.h"

namespace {

using namespace lockstep;
using Json = nlohmann::ordered_json;

struct Opened {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  text::TokenizerFiles files;
};

class Tool {
 public:
  Json answer(const Json& request) {
    const std::string call = request.at("call");
    if (call == "parquet") return parquet(request);
    if (call == "render") return render(request);
    if (call == "regex") return matches(request);
    const Opened& opened = open(request.at("folder"));
    const text::Tokenizer& tokenizer = *opened.tokenizer;
    const auto special = request.value("special", false) ? text::SpecialTokens::add : text::SpecialTokens::leave_out;
    if (call == "encode") {
      const text::Encoded encoded = tokenizer.encode_with_spans(request.at("text").get<std::string>(), special);
      return {{"tokens", encoded.tokens},
              {"spans", pairs(encoded.spans)},
              {"fast", tokenizer.encode(request.at("text").get<std::string>(), special)}};
    }
    if (call == "decode")
      return {{"text", tokenizer.decode(request.at("tokens").get<std::vector<std::int32_t>>(), request.value("skip_special", false))}};
    if (call == "describe") return describe(opened, request);
    throw std::runtime_error("no such call: " + call);
  }

 private:
  const Opened& open(const std::string& folder) {
    Opened& opened = opened_[folder];
    if (!opened.tokenizer) {
      opened.tokenizer = text::Tokenizer::open(folder);
      opened.files = text::read_tokenizer_files(folder, *opened.tokenizer);
    }
    return opened;
  }

  // For each pattern, which names it matches as a whole, or why it is refused.
  static Json matches(const Json& request) {
    Json answers = Json::array();
    for (const Json& pattern : request.at("patterns")) {
      try {
        const base::PythonRegex regex(pattern.get<std::string>());
        Json row = Json::array();
        for (const Json& name : request.at("names")) row.push_back(regex.matches_all_of(name.get<std::string>()));
        answers.push_back(std::move(row));
      } catch (const base::RegexError& error) {
        answers.push_back(error.what());
      }
    }
    return {{"answers", answers}};
  }

  Json describe(const Opened& opened, const Json& request) {
    const auto& files = opened.files;
    Json found = Json::array(), specials = Json::array();
    for (const auto& word : request.value("find", std::vector<std::string>())) {
      const auto number = opened.tokenizer->find(word);
      found.push_back(number ? Json(*number) : Json());
      specials.push_back(number && opened.tokenizer->is_special(*number));
    }
    return {{"size", opened.tokenizer->size()},
            {"bos", files.bos},
            {"eos", files.eos},
            {"pad", files.pad},
            {"unk", files.unk},
            {"end_tokens", files.end_tokens},
            {"chat_template", files.chat_template},
            {"found", found},
            {"special", specials}};
  }

  Json render(const Json& request) {
    const Opened& opened = open(request.at("folder"));
    text::TokenizerFiles files = opened.files;
    const std::string source = request.value("template", files.chat_template);
    const text::ChatTemplate chat(source, files, "template");
    text::RenderOptions options{.add_generation_prompt = request.value("add_generation_prompt", false)};
    if (request.contains("tools") && !request["tools"].is_null()) options.tools = &request["tools"];
    if (request.contains("variables")) options.variables = &request["variables"];
    if (!request.value("marked", false)) return {{"text", chat.render(request.at("messages"), options)}};
    const text::Rendered rendered = chat.render_marked(request.at("messages"), options);
    const text::Encoded encoded = opened.tokenizer->encode_with_spans(rendered.text, text::SpecialTokens::leave_out);
    Json parts = Json::array();
    for (const auto& span : rendered.answers) parts.push_back(rendered.text.substr(span.begin, span.end - span.begin));
    return {{"text", rendered.text},
            {"answers", parts},
            {"tokens", encoded.tokens},
            {"mask", text::answer_mask(encoded.spans, rendered.answers)}};
  }

  static Json parquet(const Json& request) {
    const base::MappedFile file(request.at("path").get<std::string>());
    text::ParquetRows rows({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, "file");
    Json lines = Json::array();
    while (const auto some = rows.next_lines()) lines.push_back(*some);
    return {{"count", rows.count()}, {"lines", lines}};
  }

  static Json pairs(const std::vector<text::TokenSpan>& spans) {
    Json result = Json::array();
    for (const auto& span : spans) result.push_back({span.begin, span.end});
    return result;
  }

  std::map<std::string, Opened> opened_;
};

}  // namespace

int main() {
  Tool tool;
  for (std::string line; std::getline(std::cin, line);) {
    Json answer;
    try {
      answer = tool.answer(Json::parse(line));
    } catch (const base::UserError& error) {
      answer = {{"error", error.what()}};
    } catch (const std::exception& error) {
      answer = {{"bug", error.what()}};
    }
    std::cout << answer.dump() << std::endl;
  }
}
