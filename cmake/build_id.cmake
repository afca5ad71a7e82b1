# Writes OUT, a header with what is being built, when it has changed: cmake -DSOURCE=... -DOUT=... -P build_id.cmake
# A checkout has a commit; what `git archive` packed has one in archive.txt; sources that came without either are told by their content.
get_filename_component(above "${SOURCE}" DIRECTORY)
# Not the repository that an unpacked folder may lie in; and a checkout of somebody else's is a checkout too.
execute_process(COMMAND "${CMAKE_COMMAND}" -E env "GIT_CEILING_DIRECTORIES=${above}"
                        git -c safe.directory=* -C "${SOURCE}" describe --always --dirty --abbrev=12 --exclude=*
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  file(STRINGS "${SOURCE}/cmake/archive.txt" commit LIMIT_COUNT 1)
  string(SUBSTRING "${commit}" 0 12 commit)
endif()
if(commit MATCHES "^[0-9a-f]+(-dirty)?$")
  set(build "commit ${commit}")
else()
  set(commit "unknown")
  set(content "")
  foreach(room src include python cmake models web)
    file(GLOB_RECURSE files RELATIVE "${SOURCE}" "${SOURCE}/${room}/*")
    list(FILTER files EXCLUDE REGEX "__pycache__|node_modules")
    foreach(file IN LISTS files)
      file(SHA256 "${SOURCE}/${file}" digest)
      string(APPEND content "${file} ${digest}\n")
    endforeach()
  endforeach()
  string(SHA256 digest "${content}")
  string(SUBSTRING "${digest}" 0 12 digest)
  set(build "of no commit, sources ${digest}")
endif()
file(CONFIGURE OUTPUT "${OUT}" CONTENT "// Made by cmake/build_id.cmake.\n#pragma once\n#define LOCKSTEP_COMMIT \"@commit@\"\n#define LOCKSTEP_BUILD \"@build@\"\n"
     @ONLY)
