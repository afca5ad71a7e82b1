# The Rust half of lockstep_text: cargo builds it from the lock file, and only where one of its sources changed.
find_program(LOCKSTEP_CARGO cargo HINTS "$ENV{CARGO_HOME}/bin" "$ENV{HOME}/.cargo/bin")
if(NOT LOCKSTEP_CARGO)
  message(FATAL_ERROR "cargo is not on PATH nor in ~/.cargo/bin: tokenizers are built with it. `tools/setup.sh` says how to install it.")
endif()

set(native "${CMAKE_SOURCE_DIR}/src/text/native")
set(native_target "${CMAKE_BINARY_DIR}/cargo")
set(native_library "${native_target}/release/liblockstep_text_native.a")
file(GLOB_RECURSE native_sources CONFIGURE_DEPENDS "${native}/src/*.rs")
add_custom_command(
  OUTPUT "${native_library}"
  # Where nothing that counts changed, cargo leaves the library's time as it is; it is touched so that this command is done.
  COMMAND ${CMAKE_COMMAND} -E env "CARGO_TARGET_DIR=${native_target}" "${LOCKSTEP_CARGO}" build --quiet --locked --release
  COMMAND ${CMAKE_COMMAND} -E touch "${native_library}"
  DEPENDS ${native_sources} "${native}/Cargo.toml" "${native}/Cargo.lock"
  WORKING_DIRECTORY "${native}"
  COMMENT "Building tokenizers and templates with cargo"
  VERBATIM)
add_custom_target(text_native_build DEPENDS "${native_library}")
# Linked by its path: only links wait for cargo then. A dependency between targets would hold back every compilation behind this room.
target_link_libraries(lockstep_text PUBLIC "${native_library}" dl m)
