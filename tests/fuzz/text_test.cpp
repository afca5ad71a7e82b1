// Tokenizers and chat templates that come with a model folder.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "fuzz/fuzz.h"
#include "support/temporary_folder.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lockstep::fuzz {
namespace {

class Texts : public testing::Test {
 protected:
  std::filesystem::path write(const char* name, const std::string& text) {
    // A new file each time: some file systems wait for the disk when a file is cut off and written anew.
    std::filesystem::remove(folder_.path() / name);
    std::ofstream(folder_.path() / name, std::ios::binary) << text;
    return folder_.path() / name;
  }
  support::TemporaryFolder folder_;
};

constexpr const char* small_tokenizer =
    R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[{"id":4,"content":"<s>","single_word":false,"lstrip":false,)"
    R"("rstrip":false,"normalized":false,"special":true}],"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"ByteLevel",)"
    R"("add_prefix_space":false,"trim_offsets":true,"use_regex":true},"post_processor":null,"decoder":{"type":"ByteLevel",)"
    R"("add_prefix_space":true,"trim_offsets":true,"use_regex":true},"model":{"type":"BPE","dropout":null,"unk_token":null,)"
    R"("continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":false,)"
    R"("vocab":{"a":0,"b":1,"ab":2,"abab":3},"merges":[["a","b"],["ab","ab"]]}})";

const std::vector<std::string_view> tokenizer_words = {"{",
                                                       "}",
                                                       "[",
                                                       "]",
                                                       ",",
                                                       ":",
                                                       "\"",
                                                       "null",
                                                       "true",
                                                       "0",
                                                       "4294967295",
                                                       "\"type\":",
                                                       "\"BPE\"",
                                                       "\"WordPiece\"",
                                                       "\"Unigram\"",
                                                       "\"Split\"",
                                                       "\"Regex\":\"(a+)+\"",
                                                       "\"Sequence\"",
                                                       "\"merges\":",
                                                       "\"vocab\":{}",
                                                       "\"\"",
                                                       "\\u0000"};

TEST_F(Texts, Tokenizer) {
  fuzz({"Tokenizer", {small_tokenizer}, tokenizer_words, [&](const std::string& input) {
          const auto tokenizer = text::Tokenizer::open(write("tokenizer.json", input));
          const auto encoded = tokenizer->encode_with_spans("abab é<s>", text::SpecialTokens::add);
          tokenizer->decode(encoded.tokens, false);
        }});
}

TEST_F(Texts, TokenizerConfig) {
  const auto tokenizer = text::Tokenizer::open(write("tokenizer.json", small_tokenizer));
  fuzz({"TokenizerConfig",
        {R"({"bos_token":"<s>","eos_token":{"content":"<s>","lstrip":false},"add_bos_token":true,"chat_template":"{{ messages }}",)"
         R"("added_tokens_decoder":{"4":{"content":"<s>","special":true}},"eos_token_id":[4,1]})",
         R"({"chat_template":[{"name":"default","template":"x"},{"name":"tool_use","template":"y"}],"eos_token_id":4,"pad_token":null})"},
        tokenizer_words,
        [&](const std::string& input) {
          for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "generation_config.json"}) write(name, input);
          text::read_tokenizer_files(folder_.path(), *tokenizer);
        }});
}

const std::vector<std::string_view> template_words = {"{%",
                                                      "%}",
                                                      "{{",
                                                      "}}",
                                                      "{#",
                                                      "#}",
                                                      "{%-",
                                                      "-%}",
                                                      " for m in messages ",
                                                      " endfor ",
                                                      " if ",
                                                      " endif ",
                                                      " set x = ",
                                                      " ~ ",
                                                      " + ",
                                                      " * 99 ",
                                                      "messages",
                                                      "m.content",
                                                      "range(9999)",
                                                      "|join",
                                                      "|tojson",
                                                      "|length",
                                                      "[1:-1]",
                                                      "loop.index",
                                                      ".ljust(99)",
                                                      "namespace(a=1)",
                                                      " macro f(x) ",
                                                      " endmacro ",
                                                      "f(f)",
                                                      "not ",
                                                      " in ",
                                                      " is defined",
                                                      "'",
                                                      "\"",
                                                      "(",
                                                      ")",
                                                      "[",
                                                      "]",
                                                      "{",
                                                      "}",
                                                      " generation ",
                                                      " endgeneration ",
                                                      " else ",
                                                      "|center(9)",
                                                      " ** 9 ",
                                                      "|sort",
                                                      "|replace('a','aa')",
                                                      " raw ",
                                                      " endraw "};

TEST_F(Texts, Template) {
  const auto talk = base::parse_json(R"([{"role":"user","content":"a"},{"role":"assistant","content":"b","tool_calls":[]}])");
  const text::TokenizerFiles files{.eos = "</s>", .named = {{"eos_token", "</s>"}}, .end_texts = {"</s>"}, .special_texts = {"</s>"}};
  fuzz({"Template",
        {"{% for m in messages %}<|{{ m['role'] }}|>{{ m.content | trim }}{{ eos_token }}\n{% endfor %}{% if add_generation_prompt "
         "%}<|assistant|>{% endif %}",
         "{%- set ns = namespace(x='') -%}{%- for m in messages -%}{%- set ns.x = ns.x ~ m.content -%}{%- generation -%}{{ ns.x }}"
         "{%- endgeneration -%}{%- endfor -%}",
         "{% macro f(x) %}{{ x|upper }}{% endmacro %}{{ f(messages[0].content) }}{{ messages|tojson(indent=2) }}{{ raise_exception('no') "
         "}}"},
        template_words,
        [&](const std::string& input) {
          const text::ChatTemplate chat(input, files, "fuzz.jinja");
          chat.render_marked(talk);
        }});
}

}  // namespace
}  // namespace lockstep::fuzz
