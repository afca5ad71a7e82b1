// The one reader of JSON: what it reads, where it stops, and that its time grows with the text alone.
#include "base/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep::base {
namespace {

using Json = nlohmann::ordered_json;

std::string refused(const std::string& text, SameNames same_names = SameNames::last_counts) {
  try {
    parse_json(text, same_names);
  } catch (const JsonError& error) {
    return error.what();
  }
  return "read";
}

TEST(Json, ReadsWhatTheLibraryReads) {
  for (const char* text : {"null", "[]", "{}", "-1", "18446744073709551615", "1.5e-7", "\"\\u00e9\\ud83d\\ude00\"", "[[],{},[{}]]",
                           R"({"b":1,"a":[true,false,null,{"c":"d"}],"b":2,"":{"b":3}})", " [1 ,\n2]\t"}) {
    EXPECT_EQ(parse_json(text), Json::parse(text)) << text;
    EXPECT_EQ(parse_json(text).dump(), Json::parse(text).dump()) << text;  // the order too
  }
}

TEST(Json, SaysWhere) {
  EXPECT_EQ(refused("{\"a\": 1,\n \"b\": oops}").substr(0, 17), "line 2, column 7:");
  EXPECT_EQ(refused(""), "line 1, column 1: syntax error while parsing value - unexpected end of input; expected '[', '{', or a literal");
  for (const char* text : {"[1,]", "{\"a\"}", "\"\xff\"", "nul", "[1] 2", "{\"a\":1", "1e999", "\"\\ud800\""})
    EXPECT_NE(refused(text), "read") << text;
}

TEST(Json, NestsOnlySoDeep) {
  const auto nested = [](std::size_t depth, const char* open, const char* close) {
    std::string text;
    for (std::size_t i = 0; i < depth; ++i) text += open;
    text += "1";
    for (std::size_t i = 0; i < depth; ++i) text += close;
    return text;
  };
  const Json deepest = parse_json(nested(deepest_json, "[", "]"));
  EXPECT_EQ(Json(deepest), deepest);
  EXPECT_EQ(refused("\n" + nested(deepest_json + 1, "[", "]")), "line 2, column 501: brackets nest deeper than 500 levels");
  EXPECT_EQ(refused(nested(deepest_json + 1, "{\"[\":", "}")), "line 1, column 2501: brackets nest deeper than 500 levels");
  EXPECT_EQ(refused(std::string(200'000, '[')), "line 1, column 501: brackets nest deeper than 500 levels");
}

TEST(Json, ManyMembersAreFoundFast) {
  std::string text = "{";
  constexpr int many = 200'000;  // compared each with each they would take minutes
  for (int i = 0; i < many; ++i) text += "\"name " + std::to_string(i) + "\":" + std::to_string(i) + ",";
  const Json json = parse_json(text + "\"name 70\":\"last\"}");
  ASSERT_EQ(json.size(), std::size_t{many});
  EXPECT_EQ(json["name 70"], "last");
  EXPECT_EQ(json.back(), many - 1);
  EXPECT_NE(refused(text + "\"name 70\":1}", SameNames::refused).find("name 70"), std::string::npos);
  EXPECT_NE(refused(R"({"a":{"b":1,"b":2}})", SameNames::refused), "read");
}

TEST(Json, WhatNeedNotBeJson) {
  EXPECT_FALSE(json_if_any("plain words"));
  EXPECT_EQ(json_if_any("[1]").value(), Json::array({1}));
}

}  // namespace
}  // namespace lockstep::base
