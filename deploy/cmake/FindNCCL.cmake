# Finds NCCL, which ships no CMake configuration of its own.
#   NCCL_FOUND, NCCL_VERSION, target NCCL::nccl
# Looks in NCCL_ROOT, CUDA_HOME, the CUDA toolkit's usual place, and the system.
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${NCCL_ROOT} $ENV{CUDA_HOME} /usr/local/cuda
          PATH_SUFFIXES include)
find_library(NCCL_LIBRARY nccl HINTS ${NCCL_ROOT} $ENV{CUDA_HOME} /usr/local/cuda
             PATH_SUFFIXES lib64 lib)
find_path(NCCL_CUDA_INCLUDE_DIR cuda_runtime_api.h HINTS $ENV{CUDA_HOME} /usr/local/cuda
          PATH_SUFFIXES include)
find_library(NCCL_CUDART_LIBRARY cudart HINTS $ENV{CUDA_HOME} /usr/local/cuda
             PATH_SUFFIXES lib64 lib)

if(NCCL_INCLUDE_DIR)
  file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h nccl_version_lines
       REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) [0-9]+")
  string(REGEX REPLACE "[^0-9;]" "" NCCL_VERSION "${nccl_version_lines}")
  string(REPLACE ";" "." NCCL_VERSION "${NCCL_VERSION}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR NCCL_CUDA_INCLUDE_DIR NCCL_CUDART_LIBRARY
  VERSION_VAR NCCL_VERSION)
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY NCCL_CUDA_INCLUDE_DIR NCCL_CUDART_LIBRARY)

if(NCCL_FOUND AND NOT TARGET NCCL::nccl)
  add_library(NCCL::nccl UNKNOWN IMPORTED)
  set_target_properties(
    NCCL::nccl
    PROPERTIES IMPORTED_LOCATION ${NCCL_LIBRARY}
               INTERFACE_INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR};${NCCL_CUDA_INCLUDE_DIR}"
               INTERFACE_LINK_LIBRARIES ${NCCL_CUDART_LIBRARY})
endif()
