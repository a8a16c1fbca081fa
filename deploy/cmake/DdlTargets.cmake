# How this project declares its targets.
#   ddl_library(name SRCS ... DEPS ...)
#   ddl_test(name LABEL unit|golden|sim|integration|e2e|... [TIMEOUT s] [TSAN] SRCS ... DEPS ...)
# TSAN marks a test that the thread sanitizer can judge: one that links no gRPC
# (Debian's is not instrumented, and its locks look like races). It gets the
# label tsan too, and is built by the target ddl_tsan_tests.
include_guard(GLOBAL)

set(DDL_WARNINGS -Wall -Wextra -Wpedantic -Werror -Wshadow -Wnon-virtual-dtor)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND DDL_WARNINGS -Wno-restrict) # false positives in std::string, GCC bug 105651
endif()

set(DDL_SANITIZE "" CACHE STRING "Sanitizers: address,undefined or thread")
option(DDL_FUZZ "Build the libFuzzer targets (clang only)" OFF)
if(DDL_SANITIZE)
  add_compile_options(-fsanitize=${DDL_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${DDL_SANITIZE})
endif()
if(DDL_FUZZ)
  # What the fuzzer steers by: every branch of ours. Optimised, or it is slow.
  add_compile_options(
    -O1 -fsanitize=fuzzer-no-link
    -fsanitize-coverage-ignorelist=${PROJECT_SOURCE_DIR}/tests/fuzz/coverage_ignored.txt)
endif()

add_custom_target(ddl_tsan_tests)

function(ddl_library name)
  cmake_parse_arguments(arg "" "" "SRCS;DEPS" ${ARGN})
  add_library(${name} STATIC ${arg_SRCS})
  target_link_libraries(${name} PUBLIC ${arg_DEPS})
  target_compile_options(${name} PRIVATE ${DDL_WARNINGS})
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
endfunction()

function(ddl_test name)
  cmake_parse_arguments(arg "TSAN" "LABEL;TIMEOUT" "SRCS;DEPS" ${ARGN})
  if(NOT BUILD_TESTING)
    return()
  endif()
  add_executable(${name} ${arg_SRCS})
  target_link_libraries(${name} PRIVATE ${arg_DEPS} GTest::gmock GTest::gtest_main)
  target_compile_options(${name} PRIVATE ${DDL_WARNINGS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  # One CTest entry a program: starting a program costs more than most tests.
  add_test(NAME ${name} COMMAND ${name})
  set(labels ${arg_LABEL})
  if(arg_TSAN)
    list(APPEND labels tsan)
    add_dependencies(ddl_tsan_tests ${name})
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${arg_TIMEOUT})
endfunction()
