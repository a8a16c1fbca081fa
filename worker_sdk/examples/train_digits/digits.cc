// Reads digits.csv.gz with zlib.
#include "worker_sdk/examples/train_digits/digits.h"

#include <zlib.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>

#include "agent/base/status_macros.h"
#include "ddl/sampler.h"

namespace ddl::digits {
namespace {

constexpr float kMaxPixel = 16;
constexpr std::size_t kTestEvery = 5;
// The test images must not depend on the epoch: the split is its epoch -1.
constexpr std::int64_t kSplitEpoch = -1;

absl::StatusOr<std::string> ReadAll(const std::string& path) {
  errno = 0;
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(::gzopen(path.c_str(), "rb"), &::gzclose);
  if (file == nullptr) {
    return absl::ErrnoToStatus(errno == 0 ? ENOMEM : errno, "cannot open the data file " + path +
                                                                " (--data=FILE names another)");
  }
  std::string text;
  std::array<char, 1U << 16U> buffer{};
  int got = 0;
  while ((got = ::gzread(file.get(), buffer.data(), buffer.size())) > 0) {
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  if (got < 0 || ::gzeof(file.get()) == 0) {
    return absl::DataLossError("the data file " + path + " is damaged");
  }
  return text;
}

// "0,5,13,...,9"; false when it is anything else.
bool ParseLine(std::string_view line, Image* image) {
  for (int column = 0; column <= kPixels; ++column) {
    int value = 0;
    const auto [stop, error] = std::from_chars(line.data(), line.data() + line.size(), value);
    const bool is_label = column == kPixels;
    if (error != std::errc() || value < 0 || (is_label && value >= kClasses)) {
      return false;
    }
    line.remove_prefix(static_cast<std::size_t>(stop - line.data()));
    if (is_label) {
      image->label = value;
    } else {
      image->pixels[static_cast<std::size_t>(column)] = static_cast<float>(value) / kMaxPixel;
      if (line.empty() || line.front() != ',') {
        return false;
      }
      line.remove_prefix(1);
    }
  }
  return line.empty() || line == "\r";
}

absl::StatusOr<std::vector<Image>> Parse(std::string_view text, const std::string& path) {
  std::vector<Image> images;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    Image image;
    if (!ParseLine(text.substr(0, end), &image)) {
      return absl::DataLossError("the data file " + path + ", line " +
                                 std::to_string(images.size() + 1) + ": not 64 pixels and a label");
    }
    images.push_back(image);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return images;
}

}  // namespace

absl::StatusOr<DataSet> Load(const std::string& path, std::uint64_t seed) {
  DDL_ASSIGN_OR_RETURN(const std::string text, ReadAll(path));
  DDL_ASSIGN_OR_RETURN(const std::vector<Image> images, Parse(text, path));
  const std::vector<std::int64_t> order =
      Permutation(static_cast<std::int64_t>(images.size()), seed, kSplitEpoch);
  DataSet data;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Image& image = images[static_cast<std::size_t>(order[i])];
    (i % kTestEvery == 0 ? data.test : data.training).push_back(image);
  }
  return data;
}

std::string DefaultPath() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return (program.parent_path().parent_path() / "share" / "ddlaunch" / "digits.csv.gz").string();
}

}  // namespace ddl::digits
