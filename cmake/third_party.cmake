# What of others is inside the programs, with versions and licences: generated/third_party.h for `lockstep --version --verbose`, and
# third_party.txt with the licences' texts, which goes along wherever the programs go.
set(third_party_cuda)
if(LOCKSTEP_CUDA)
  set(third_party_cuda --cuda "${site_packages}")
endif()
set(third_party_header "${CMAKE_BINARY_DIR}/generated/third_party.h")
set(third_party_texts "${CMAKE_BINARY_DIR}/third_party.txt")
set(LOCKSTEP_BUILT_FOR "")
if(LOCKSTEP_CUDA)
  list(TRANSFORM LOCKSTEP_CUDA_ARCHITECTURES REPLACE "([0-9])$" ".\\1" OUTPUT_VARIABLE capabilities)
  list(JOIN capabilities ", " LOCKSTEP_BUILT_FOR)
endif()
add_custom_command(
  OUTPUT "${third_party_header}" "${third_party_texts}"
  COMMAND python3 "${CMAKE_SOURCE_DIR}/tools/third_party.py" --cargo "${LOCKSTEP_CARGO}" --compiler "${CMAKE_CXX_COMPILER}" ${third_party_cuda}
          --page "${LOCKSTEP_DEPS}/web/node_modules"
          --header "${third_party_header}" --texts "${third_party_texts}"
  # The crates' sources are where cargo put them to build, the page's packages where npm did.
  DEPENDS "${native_library}" "${embedded_page}" "${CMAKE_SOURCE_DIR}/tools/third_party.py" "${CMAKE_SOURCE_DIR}/tools/setup.sh"
  COMMENT "Listing what is inside, and under which licences"
  VERBATIM)
add_custom_target(third_party DEPENDS "${third_party_header}")
