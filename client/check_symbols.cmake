# cmake -DLIBRARY=... -DEXPECTED=... -DNM=... -DREADELF=... -P check_symbols.cmake
# What libvuda.so needs and exports is a promise to programs: this fails when the library and the checked-in list differ.
execute_process(COMMAND ${READELF} -dW ${LIBRARY} OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${NM} -D --defined-only --with-symbol-versions ${LIBRARY} OUTPUT_VARIABLE symbols
                COMMAND_ERROR_IS_FATAL ANY)
set(found)
string(REGEX MATCHALL "\\((NEEDED|SONAME)\\)[^\n]*\\[[^]\n]*\\]" entries "${dynamic}")
foreach(entry IN LISTS entries)
    string(REGEX REPLACE "\\((NEEDED|SONAME)\\).*\\[(.*)\\]" "\\1 \\2" entry "${entry}")
    string(REGEX REPLACE "ld-linux.*" "ld-linux" entry "${entry}")  # its name differs between architectures
    list(APPEND found "${entry}")
endforeach()
string(REGEX MATCHALL "[TWDBRVu] [A-Za-z_0-9]+[^\n]*" exported "${symbols}")
list(APPEND found ${exported})
list(SORT found)
list(JOIN found "\n" found)
file(READ ${EXPECTED} expected)
string(STRIP "${expected}" expected)
if(NOT found STREQUAL expected)
    message(FATAL_ERROR "differs from ${EXPECTED}:\n${found}")
endif()
