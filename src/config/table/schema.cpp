// A JSON Schema of config files, so that editors complete keys and mark mistakes while one types.
#include <cmath>
#include <nlohmann/json.hpp>

#include "config/config.h"
#include "config/table/option.h"
#include "config/table/value.h"

namespace lockstep::config {
namespace {

using Json = nlohmann::ordered_json;

Json number_json(const Option& option, double value) {
  if (option.kind == Kind::number && std::trunc(value) != value) return value;
  return static_cast<std::int64_t>(value);
}

Json default_json(const Option& option) {
  const Value value = option.get(RunConfig{});
  if (option.kind == Kind::choice) return write_value(option, value);
  return std::visit([](const auto& held) { return Json(held); }, value);
}

void add_range(const Option& option, Json& schema) {
  const Range& range = option.about.range;
  if (std::isfinite(range.least)) schema[range.above_least ? "exclusiveMinimum" : "minimum"] = number_json(option, range.least);
  if (std::isfinite(range.most)) schema[range.below_most ? "exclusiveMaximum" : "maximum"] = number_json(option, range.most);
}

// A word such as "auto" beside the numbers.
Json with_words(const Option& option, Json schema) {
  if (option.about.zero_words.empty()) return schema;
  return {{"anyOf", Json::array({std::move(schema), {{"enum", option.about.zero_words}}})}};
}

Json choice_words(const Option& option) {
  Json words = Json::array();
  for (const Choice& choice : option.choices) words.push_back(choice.name);
  for (const Choice& choice : option.choices) {
    for (const std::string_view other : choice.others) words.push_back(other);
  }
  return words;
}

Json type_json(const Option& option) {
  Json schema;
  switch (option.kind) {
    case Kind::boolean: return {{"type", "boolean"}};
    case Kind::text: return {{"type", "string"}};
    case Kind::choice: return {{"enum", choice_words(option)}};
    case Kind::integer:
    case Kind::number:
      schema["type"] = option.kind == Kind::integer ? "integer" : "number";
      add_range(option, schema);
      return with_words(option, schema);
    case Kind::texts: {
      const Json list = {{"type", "array"}, {"items", {{"type", "string"}}}};
      return {{"anyOf", Json::array({list, {{"type", "string"}}})}};  // "q_proj,v_proj"
    }
    case Kind::integers: {
      Json items = {{"type", "integer"}};
      add_range(option, items);
      const Json list = {{"type", "array"}, {"items", items}};
      const Json text = {{"type", "string"}};  // "0,1"
      return {{"anyOf", Json::array({list, text})}};
    }
  }
  return schema;
}

Json option_json(const Option& option) {
  Json schema = type_json(option);
  std::string description(option.about.says);
  if (!option.about.zero.empty()) {
    description += fmt::format(" {}: {}.", option.kind == Kind::text || option.is_list() ? "Empty" : "0", option.about.zero);
  }
  if (!option.about.unit.empty()) description += fmt::format(" Unit: {}.", option.about.unit);
  schema["description"] = description;
  schema["default"] = default_json(option);
  return schema;
}

Json alias_json(const Option& option, const Alias& alias) {
  Json schema = alias.when_true.empty() ? type_json(option) : Json{{"type", "boolean"}};
  schema["description"] = alias.when_true.empty() ? fmt::format("Another name of {}.", option.key)
                                                  : fmt::format("true is another way to write {}: {}.", option.key, alias.when_true);
  return schema;
}

// The properties of the section at `path`, opened on the way.
Json& properties_of(Json& root, std::string_view path) {
  Json* here = &root;
  while (!path.empty()) {
    const std::size_t dot = path.find('.');
    Json& section = (*here)["properties"][std::string(path.substr(0, dot))];
    if (section.is_null()) section = {{"type", "object"}, {"additionalProperties", false}, {"properties", Json::object()}};
    here = &section;
    path = dot == path.npos ? std::string_view() : path.substr(dot + 1);
  }
  return (*here)["properties"];
}

}  // namespace

std::string json_schema() {
  Json root = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
               {"title", "Lockstep run"},
               {"type", "object"},
               {"additionalProperties", false},
               {"properties", Json::object()}};
  for (const Option& option : options()) properties_of(root, option.section())[std::string(option.leaf())] = option_json(option);
  for (const Option& option : options()) {
    for (const Alias& alias : option.about.aliases) {
      const Json schema = alias_json(option, alias);
      for (const std::string_view section : {option.section(), std::string_view("trainer"), std::string_view()}) {
        properties_of(root, section)[std::string(alias.name)] = schema;
      }
    }
  }
  for (const Option& option : options()) {  // our own keys in dotted form, and their last part where it is enough
    root["properties"][std::string(option.key)] = option.section().empty() ? option_json(option) : alias_json(option, {option.key});
    const auto bare = find_key(option.leaf());
    Json& top = root["properties"];
    if (bare && bare->option == &option && !top.contains(std::string(option.leaf())))
      top[std::string(option.leaf())] = alias_json(option, {option.leaf()});
  }
  return root.dump(2) + "\n";
}

}  // namespace lockstep::config
