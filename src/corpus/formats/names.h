// What fields and roles are called in people's records, and records of other trainings than language modeling.
#pragma once

#include "config/run_config.h"
#include "corpus/files/files.h"

namespace lockstep::corpus {

// The record with the names that format.cpp knows: data.system_field, input_field, history_field and tools_field become system, input,
// history and tools; what is "none" is left out.
Json with_usual_fields(const Json& record, const config::DataConfig& data);

// The messages of a conversation with role and content (from and value for sharegpt) under their usual names, and roles by data.roles.
// Throws Unreadable for a role that data.roles does not name.
Json with_usual_roles(Json messages, config::RecordFormat format, const config::DataConfig& data);

// Throws Unreadable for a record of preference training (chosen and rejected), of KTO (a label of true or false beside an answer) or with
// images, videos or sound: as plain text it would teach what nobody meant. Naming the fields to read (data.prompt_field, ...) says that
// text alone is meant.
void refuse_other_trainings(const Json& record, const config::DataConfig& data);

}  // namespace lockstep::corpus
