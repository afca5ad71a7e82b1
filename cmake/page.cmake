# The files of the page (web/, built by Vite) inside the program. Without npm it holds a page that says how to get the real one.
find_program(LOCKSTEP_NPM npm)
file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/web/npm.txt" CONTENT "${LOCKSTEP_NPM}\n")
file(GLOB_RECURSE page_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/web/*")
list(FILTER page_sources EXCLUDE REGEX "/(node_modules|dist)/")
set(embedded_page "${CMAKE_BINARY_DIR}/web/embedded.cpp")
add_custom_command(OUTPUT "${embedded_page}"
  COMMAND "${CMAKE_SOURCE_DIR}/tools/build_page.sh" "${CMAKE_BINARY_DIR}/web" "${LOCKSTEP_DEPS}"
  DEPENDS ${page_sources} "${CMAKE_BINARY_DIR}/web/npm.txt" "${CMAKE_SOURCE_DIR}/tools/build_page.sh" "${CMAKE_SOURCE_DIR}/tools/embed_page.py"
  COMMENT "Building the page" VERBATIM)
target_sources(lockstep_front_serve PRIVATE "${embedded_page}")
set_source_files_properties("${embedded_page}" PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
