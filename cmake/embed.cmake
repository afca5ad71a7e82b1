# build/lib/liblockstep.so, for programs that embed runs: the C interface of include/lockstep/lockstep_c.h and nothing else is visible, so
# whatever compiler and libraries those programs have, none of ours meet them.
target_include_directories(lockstep_embed PUBLIC "${CMAKE_SOURCE_DIR}/include")
set_source_files_properties(embed/embed.cpp PROPERTIES COMPILE_DEFINITIONS "LOCKSTEP_VERSION=\"${PROJECT_VERSION}\"")
set(embed_symbols "${CMAKE_SOURCE_DIR}/cmake/embed_symbols.txt")
add_library(liblockstep SHARED $<TARGET_OBJECTS:lockstep_embed>)
set_target_properties(liblockstep PROPERTIES OUTPUT_NAME lockstep PREFIX lib EXPORT_NAME lockstep LINKER_LANGUAGE CXX LINK_DEPENDS "${embed_symbols}")
target_link_libraries(liblockstep PRIVATE lockstep_base -static-libgcc -static-libstdc++ -Wl,--gc-sections)
target_link_options(liblockstep PRIVATE "LINKER:--version-script=${embed_symbols}")  # among the libraries a name with spaces would be cut
target_include_directories(liblockstep INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
