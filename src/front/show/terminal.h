// What the terminal at hand can show.
#pragma once

namespace lockstep::show {

// Columns of standard output; 0 where it is none.
int terminal_columns();
// Whether letters beyond ASCII come out as such: by LC_ALL, LC_CTYPE or LANG. Where none is set, as in most containers, they do.
bool shows_utf8();

}  // namespace lockstep::show
