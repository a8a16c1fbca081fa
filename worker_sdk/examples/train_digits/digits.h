// The handwritten digits: reading, and the split into training and test.
#ifndef DDLAUNCH_WORKER_SDK_EXAMPLES_TRAIN_DIGITS_DIGITS_H_
#define DDLAUNCH_WORKER_SDK_EXAMPLES_TRAIN_DIGITS_DIGITS_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ddl::digits {

inline constexpr int kPixels = 64;
inline constexpr int kClasses = 10;

struct Image {
  std::array<float, kPixels> pixels{};  // 0 .. 1
  int label = 0;
};

struct DataSet {
  std::vector<Image> training;
  std::vector<Image> test;
};

// Reads a CSV file, gzipped or not, and holds every fifth image of a seeded
// permutation back for the test: the same ones on every rank.
// Errors: NOT_FOUND, no such file; DATA_LOSS, a line that is no image.
absl::StatusOr<DataSet> Load(const std::string& path, std::uint64_t seed);

// The file that comes with this program: ../share/ddlaunch beside its folder.
std::string DefaultPath();

}  // namespace ddl::digits

#endif  // DDLAUNCH_WORKER_SDK_EXAMPLES_TRAIN_DIGITS_DIGITS_H_
