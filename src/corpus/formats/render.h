// Renders a conversation in the form that the template wants, where the record leaves a choice.
#pragma once

#include "corpus/formats/format.h"
#include "corpus/formats/language.h"

namespace lockstep::corpus {

// The template's refusal is a UserError. all: everything will be trained, not the answers alone. Throws Unreadable where a null would be
// trained as the word None.
text::Rendered render_conversation(const text::Language& language, const Conversation& conversation, bool all);

}  // namespace lockstep::corpus
