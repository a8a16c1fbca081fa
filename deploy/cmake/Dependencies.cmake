# The libraries ddlaunch stands on, as interface targets:
#   ddl_absl      Abseil (status, time, strings)
#   ddl_grpc      gRPC, Protobuf and what they need
#   ddl_hwloc     hwloc, the machine's topology
#   ddl_yaml      yaml-cpp, configuration files
# All link the static archives where the system has them: a program of ours
# then starts in about 2 ms instead of 8, because the dynamic linker has a
# dozen libraries less to load and relocate.
include_guard(GLOBAL)

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(Protobuf REQUIRED) # module mode: Debian ships no config; before gRPC
find_package(absl CONFIG REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(Gloo CONFIG REQUIRED)
find_package(NCCL) # optional: see FindNCCL.cmake

# Full paths of the archives of a pkg-config package and all it requires; what
# has no archive stays a plain library name.
function(ddl_static_libraries out package)
  pkg_check_modules(pc_${package} QUIET ${package})
  if(NOT pc_${package}_FOUND)
    message(FATAL_ERROR "pkg-config knows no ${package}; run deploy/install-packages.sh")
  endif()
  set(libs "")
  foreach(name IN LISTS pc_${package}_STATIC_LIBRARIES)
    find_library(DDL_ARCHIVE_${name} NAMES lib${name}.a)
    mark_as_advanced(DDL_ARCHIVE_${name})
    if(DDL_ARCHIVE_${name})
      list(APPEND libs ${DDL_ARCHIVE_${name}})
    else()
      list(APPEND libs ${name})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES libs)
  set(${out} "${libs}" PARENT_SCOPE)
endfunction()

ddl_static_libraries(DDL_GRPC_LIBRARIES grpc++)
find_library(DDL_ARCHIVE_protobuf NAMES libprotobuf.a)
if(NOT DDL_ARCHIVE_protobuf)
  set(DDL_ARCHIVE_protobuf protobuf)
endif()

set(DDL_ABSL_LIBRARIES ${DDL_GRPC_LIBRARIES})
list(FILTER DDL_ABSL_LIBRARIES INCLUDE REGEX "absl_")

# The archives refer to each other in circles: one linker group, as one item, so
# that CMake neither reorders nor thins it out.
function(ddl_link_group out)
  set(items ${ARGN})
  list(TRANSFORM items PREPEND "-l" REGEX "^[^/-]")
  list(JOIN items "," joined)
  set(${out} "-Wl,--start-group,${joined},--end-group" PARENT_SCOPE)
endfunction()

ddl_link_group(absl_group ${DDL_ABSL_LIBRARIES})
add_library(ddl_absl INTERFACE)
target_link_libraries(ddl_absl INTERFACE ${absl_group} Threads::Threads)

ddl_link_group(grpc_group ${DDL_ARCHIVE_protobuf} ${DDL_GRPC_LIBRARIES})
add_library(ddl_grpc INTERFACE)
target_link_libraries(ddl_grpc INTERFACE ${grpc_group} Threads::Threads ${CMAKE_DL_LIBS})

# hwloc's archive wants libudev, which has none: launcher/binding/no_udev.cc
# stands in for it. Without the archive, the shared library is linked.
pkg_check_modules(HWLOC REQUIRED hwloc>=2.1)
find_library(DDL_ARCHIVE_hwloc NAMES libhwloc.a HINTS ${HWLOC_LIBRARY_DIRS})
mark_as_advanced(DDL_ARCHIVE_hwloc)
add_library(ddl_hwloc INTERFACE)
target_include_directories(ddl_hwloc SYSTEM INTERFACE ${HWLOC_INCLUDE_DIRS})
if(DDL_ARCHIVE_hwloc)
  set(DDL_HWLOC_NEEDS_NO_UDEV ON)
  target_link_libraries(ddl_hwloc INTERFACE ${DDL_ARCHIVE_hwloc} m Threads::Threads
                                            ${CMAKE_DL_LIBS})
else()
  target_link_libraries(ddl_hwloc INTERFACE ${HWLOC_LINK_LIBRARIES})
endif()

pkg_check_modules(YAML_CPP REQUIRED yaml-cpp>=0.6)
find_library(DDL_ARCHIVE_yaml_cpp NAMES libyaml-cpp.a HINTS ${YAML_CPP_LIBRARY_DIRS})
mark_as_advanced(DDL_ARCHIVE_yaml_cpp)
add_library(ddl_yaml INTERFACE)
target_include_directories(ddl_yaml SYSTEM INTERFACE ${YAML_CPP_INCLUDE_DIRS})
if(DDL_ARCHIVE_yaml_cpp)
  target_link_libraries(ddl_yaml INTERFACE ${DDL_ARCHIVE_yaml_cpp})
else()
  target_link_libraries(ddl_yaml INTERFACE ${YAML_CPP_LINK_LIBRARIES})
endif()
