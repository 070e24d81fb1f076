# Compiler settings and the helpers that every folder uses.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# One place for what runs, so that a build tree works like an installed one: the shims find libvuda.so beside them.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)

if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

find_program(VUDA_CCACHE ccache)
if(VUDA_CCACHE)
    set(CMAKE_C_COMPILER_LAUNCHER ${VUDA_CCACHE})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${VUDA_CCACHE})
endif()

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

# Link PRIVATE to hold hand-written code to the project's warnings (generated code does not link it).
add_library(vuda_warnings INTERFACE)
target_compile_options(vuda_warnings INTERFACE -Wall -Wextra -Wpedantic -Werror)
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # It means types in headers; in a unit every source looks like one.
    target_compile_options(vuda_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()

# What goes into other programs' processes must not depend on, or replace, the C++ runtime that they use. ThreadSanitizer has to see that runtime:
# a static one's guards of function-local variables look like nothing at all to it.
set(VUDA_STATIC_RUNTIME -static-libgcc -static-libstdc++)
if(VUDA_SANITIZE MATCHES thread)
    set(VUDA_STATIC_RUNTIME)
endif()
if(VUDA_SANITIZE)
    add_compile_options(-fsanitize=${VUDA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    # Of "undefined", clang only: C entry points looked up with dlsym are called through types of our own.
    if(CMAKE_CXX_COMPILER_ID MATCHES Clang AND VUDA_SANITIZE MATCHES undefined)
        add_compile_options(-fno-sanitize=function)
    endif()
    add_link_options(-fsanitize=${VUDA_SANITIZE})
    # For tests that measure: gcc and clang have no word of their own for it in common.
    add_compile_definitions(VUDA_SANITIZED)
    # What is shipped is linked with the system's linker; the large programs with sanitizers with a faster one.
    find_program(VUDA_LLD ld.lld)
    if(VUDA_LLD)
        add_link_options(-fuse-ld=lld)
    endif()
    if(VUDA_SANITIZE MATCHES address AND CMAKE_CXX_COMPILER_ID STREQUAL Clang AND CMAKE_CXX_COMPILER_VERSION MATCHES "^14\\.")
        add_library(vuda_asan_fork OBJECT ${PROJECT_SOURCE_DIR}/tests/sanitizers/fork.cc)
        link_libraries($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:$<TARGET_OBJECTS:vuda_asan_fork>>)
    endif()
endif()

# With CMAKE_UNITY_BUILD (presets release, asan, tsan) the sources of a target are one translation unit: the headers of gRPC, Asio, JSON and
# GoogleTest are read, and their templates compiled, once a target. Names in unnamed namespaces are therefore unique within a target; a source
# that cannot be has the property SKIP_UNITY_BUILD_INCLUSION. That each source also compiles alone is checked by scripts/lint.py.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 0)

# vuda_test(NAME SOURCES ... LIBS ... [LABELS ...] [TIMEOUT seconds]): one GoogleTest program; one ctest entry a test case, with sanitizers one a program.
function(vuda_test name)
    cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
    if(NOT VUDA_BUILD_TESTS)
        return()
    endif()
    if(NOT ARG_LABELS)
        set(ARG_LABELS unit)
    endif()
    if(NOT ARG_TIMEOUT)
        set(ARG_TIMEOUT 60)
    endif()
    add_executable(${name} ${ARG_SOURCES})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${name} PRIVATE ${ARG_LIBS} vuda_warnings GTest::gtest GTest::gmock GTest::gtest_main Threads::Threads)
    # The product is optimised; optimising GoogleTest's macros as well would nearly double the time that tests take to compile.
    target_compile_options(${name} PRIVATE -O0)
    include(GoogleTest)
    list(GET ARG_LABELS 0 label)
    # A program with a sanitizer takes longer to start than most cases do.
    if(VUDA_SANITIZE AND NOT label STREQUAL "e2e")
        add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
        set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 400)
        return()
    endif()
    # The list of cases is made when ctest runs: a build does not wait for the programs it has linked.
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
                         PROPERTIES LABELS ${label} TIMEOUT ${ARG_TIMEOUT})
    if(NOT ARG_LABELS STREQUAL label)
        # gtest_discover_tests would take the second label for the next property's name.
        set(script ${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake)
        file(WRITE ${script} "if(${name}_TESTS)\n    set_tests_properties(\${${name}_TESTS} PROPERTIES LABELS \"${ARG_LABELS}\")\nendif()\n")
        set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${script})
    endif()
endfunction()

# vuda_fuzzer(NAME SOURCES ... LIBS ... CORPUS dir): a libFuzzer program; without clang the same sources are built with a
# driver that runs the checked-in corpus, so that every compiler keeps the corpus passing (ctest label fuzz).
function(vuda_fuzzer name)
    cmake_parse_arguments(ARG "" "CORPUS" "SOURCES;LIBS" ${ARGN})
    if(NOT VUDA_BUILD_TESTS)
        return()
    endif()
    add_executable(${name} ${ARG_SOURCES})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${name} PRIVATE ${ARG_LIBS} vuda_warnings Threads::Threads)
    if(VUDA_BUILD_FUZZERS)
        target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
        target_link_options(${name} PRIVATE -fsanitize=fuzzer)
        set_property(GLOBAL APPEND PROPERTY VUDA_FUZZERS "${name}|${ARG_CORPUS}")
        add_test(NAME ${name} COMMAND ${name} -runs=0 ${ARG_CORPUS})
    else()
        target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/fuzz_corpus_main.cc)
        add_test(NAME ${name} COMMAND ${name} ${ARG_CORPUS})
    endif()
    set_tests_properties(${name} PROPERTIES LABELS fuzz TIMEOUT 60)
endfunction()

# Call once, after all folders: the target `fuzzers`, and the list of them with their corpora that scripts/test.sh reads.
function(vuda_finish_fuzzers)
    get_property(entries GLOBAL PROPERTY VUDA_FUZZERS)
    set(names)
    set(lines "")
    foreach(entry IN LISTS entries)
        string(REPLACE "|" ";" parts "${entry}")
        list(GET parts 0 name)
        list(GET parts 1 corpus)
        list(APPEND names ${name})
        string(APPEND lines "${name} ${corpus}\n")
    endforeach()
    add_custom_target(fuzzers DEPENDS ${names})
    file(WRITE ${PROJECT_BINARY_DIR}/fuzzers.txt "${lines}")
endfunction()
