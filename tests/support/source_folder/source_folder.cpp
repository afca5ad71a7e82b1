// The one file compiled with the path in it: a path in every test's command line would keep ccache from sharing objects between clones.
#include "support/source_folder/source_folder.h"

namespace lockstep::test {
std::string source_folder() { return LOCKSTEP_SOURCE_DIR; }
}  // namespace lockstep::test
