# How this project declares its targets.
#   ddl_library(name SRCS ... DEPS ...)
#   ddl_test(name LABEL unit|golden|sim|integration|e2e|... SRCS ... DEPS ...)
include_guard(GLOBAL)

set(DDL_WARNINGS -Wall -Wextra -Wpedantic -Werror -Wshadow -Wnon-virtual-dtor)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND DDL_WARNINGS -Wno-restrict) # false positives in std::string, GCC bug 105651
endif()

set(DDL_SANITIZE "" CACHE STRING "Sanitizers: address,undefined or thread")
if(DDL_SANITIZE)
  add_compile_options(-fsanitize=${DDL_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${DDL_SANITIZE})
endif()

function(ddl_library name)
  cmake_parse_arguments(arg "" "" "SRCS;DEPS" ${ARGN})
  add_library(${name} STATIC ${arg_SRCS})
  target_link_libraries(${name} PUBLIC ${arg_DEPS})
  target_compile_options(${name} PRIVATE ${DDL_WARNINGS})
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
endfunction()

function(ddl_test name)
  cmake_parse_arguments(arg "" "LABEL;TIMEOUT" "SRCS;DEPS" ${ARGN})
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
  set_tests_properties(${name} PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT})
endfunction()
