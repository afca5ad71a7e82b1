# Writes OUT, a header with the commit that is being built, when it has changed: cmake -DSOURCE=... -DOUT=... -P build_id.cmake
execute_process(COMMAND git -C "${SOURCE}" describe --always --dirty --abbrev=12 --exclude=* OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
                RESULT_VARIABLE failed)
if(failed OR commit STREQUAL "")
  set(commit "unknown")
endif()
file(CONFIGURE OUTPUT "${OUT}" CONTENT "// Made by cmake/build_id.cmake.\n#pragma once\n#define LOCKSTEP_COMMIT \"@commit@\"\n" @ONLY)
