# cmake -P: install, configure, build, run; the first that fails ends the test.
function(must)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "failed (${result}): ${ARGN}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

set(flags "")
if(SANITIZE)
  set(flags -fsanitize=${SANITIZE})
endif()
file(REMOVE_RECURSE ${WORK_DIR})
must(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix)
must(${CMAKE_COMMAND} -S ${CONSUMER_DIR} -B ${WORK_DIR}/build -G ${GENERATOR}
     -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix -DCMAKE_CXX_COMPILER=${CXX}
     -DCMAKE_CXX_FLAGS=${flags})
must(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
# Alone, and on two ranks: the same training.
must(${WORK_DIR}/build/consumer)
if(NOT output MATCHES "rank 0 of 1: global batch 32 = micro 32 [^\n]*weight (2.9[0-9]+)")
  message(FATAL_ERROR "the consumer said: ${output}")
endif()
set(weight ${CMAKE_MATCH_1})
must(${WORK_DIR}/prefix/bin/ddlaunch --nproc_per_node=2 ${WORK_DIR}/build/consumer)
foreach(rank 0 1)
  if(NOT output MATCHES "rank ${rank} of 2: global batch 32 = micro 16 [^\n]*weight ${weight}")
    message(FATAL_ERROR "the consumer on two ranks said: ${output}")
  endif()
endforeach()
# It finds the installed data, from any directory.
must(${CMAKE_COMMAND} -E chdir / ${WORK_DIR}/prefix/bin/train_bin --epochs 1)
if(NOT output MATCHES "done: accuracy")
  message(FATAL_ERROR "train_bin said: ${output}")
endif()
# The manual page and completion lie where their readers look.
foreach(file share/man/man1/ddlaunch.1 share/bash-completion/completions/ddlaunch
             share/zsh/site-functions/_ddlaunch)
  if(NOT EXISTS ${WORK_DIR}/prefix/${file})
    message(FATAL_ERROR "not installed: ${file}")
  endif()
endforeach()
