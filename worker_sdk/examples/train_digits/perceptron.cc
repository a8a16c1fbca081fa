// Forward, backward and update of the perceptron.
//
// Layout: hidden weights [hidden][64], hidden biases [hidden], output weights
// [10][hidden], output biases [10].
#include "worker_sdk/examples/train_digits/perceptron.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace ddl::digits {
namespace {

constexpr float kMomentum = 0.9F;

// Eight partial sums, so that the compiler may use vector registers without
// changing the order of additions; `count` need not be a multiple of them.
float Dot(const float* a, const float* b, std::size_t count) {
  constexpr std::size_t kLanes = 8;
  std::array<float, kLanes> sums{};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += a[i + lane] * b[i + lane];
    }
  }
  float sum = 0;
  for (; i < count; ++i) {
    sum += a[i] * b[i];
  }
  for (const float part : sums) {
    sum += part;
  }
  return sum;
}

// y += factor x x
void AddScaled(float factor, const float* x, float* y, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    y[i] += factor * x[i];
  }
}

}  // namespace

std::size_t Perceptron::HiddenBias() const {
  return hidden_count_ * kPixels;
}
std::size_t Perceptron::OutputWeight() const {
  return HiddenBias() + hidden_count_;
}
std::size_t Perceptron::OutputBias() const {
  return OutputWeight() + kClasses * hidden_count_;
}

Perceptron::Perceptron(int hidden, std::uint64_t seed)
    : hidden_count_(static_cast<std::size_t>(hidden)),
      weights_(OutputBias() + kClasses),
      gradients_(weights_.size()),
      velocity_(weights_.size()),
      hidden_(hidden_count_),
      hidden_error_(hidden_count_) {
  // mt19937_64's output is specified; the distributions of the standard library
  // are not, so the numbers are scaled here.
  std::mt19937_64 random(seed);
  const auto fill = [&](std::size_t begin, std::size_t end, std::size_t inputs) {
    constexpr double kGain = 6;
    const double range = std::sqrt(kGain / static_cast<double>(inputs));
    for (std::size_t i = begin; i < end; ++i) {
      const double unit = static_cast<double>(random() >> 11U) * 0x1p-53;  // 0 <= unit < 1
      weights_[i] = static_cast<float>((2 * unit - 1) * range);
    }
  };
  fill(0, HiddenBias(), kPixels);
  fill(OutputWeight(), OutputBias(), hidden_count_);
}

void Perceptron::Forward(const Image& image) {
  for (std::size_t j = 0; j < hidden_count_; ++j) {
    const float sum =
        weights_[HiddenBias() + j] + Dot(&weights_[j * kPixels], image.pixels.data(), kPixels);
    hidden_[j] = std::max(sum, 0.0F);
  }
  for (std::size_t k = 0; k < kClasses; ++k) {
    output_[k] = weights_[OutputBias() + k] +
                 Dot(&weights_[OutputWeight() + k * hidden_count_], hidden_.data(), hidden_count_);
  }
}

double Perceptron::AddGradient(const Image& image) {
  Forward(image);
  const auto label = static_cast<std::size_t>(image.label);
  const float largest = *std::max_element(output_.begin(), output_.end());
  double sum = 0;
  for (const float value : output_) {
    sum += std::exp(static_cast<double>(value - largest));
  }
  std::fill(hidden_error_.begin(), hidden_error_.end(), 0.0F);
  for (std::size_t k = 0; k < kClasses; ++k) {
    // d loss / d output = softmax - one-hot label
    const auto softmax =
        static_cast<float>(std::exp(static_cast<double>(output_[k] - largest)) / sum);
    const float error = softmax - (k == label ? 1.0F : 0.0F);
    const std::size_t row = OutputWeight() + k * hidden_count_;
    AddScaled(error, &weights_[row], hidden_error_.data(), hidden_count_);
    AddScaled(error, hidden_.data(), &gradients_[row], hidden_count_);
    gradients_[OutputBias() + k] += error;
  }
  for (std::size_t j = 0; j < hidden_count_; ++j) {
    if (hidden_[j] > 0) {  // ReLU passes no error below zero
      AddScaled(hidden_error_[j], image.pixels.data(), &gradients_[j * kPixels], kPixels);
      gradients_[HiddenBias() + j] += hidden_error_[j];
    }
  }
  return std::log(sum) - static_cast<double>(output_[label] - largest);
}

int Perceptron::Classify(const Image& image) {
  Forward(image);
  return static_cast<int>(std::max_element(output_.begin(), output_.end()) - output_.begin());
}

void Perceptron::Update(double rate) {
  const auto step = static_cast<float>(rate);
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    velocity_[i] = kMomentum * velocity_[i] + gradients_[i];
    weights_[i] -= step * velocity_[i];
  }
}

std::vector<Parameter> Perceptron::Parameters() {
  const std::span<float> values(weights_);
  const std::span<float> gradients(gradients_);
  const auto part = [&](const char* name, std::size_t begin, std::size_t end) {
    return Parameter{name, values.subspan(begin, end - begin),
                     gradients.subspan(begin, end - begin)};
  };
  return {part("hidden.weight", 0, HiddenBias()), part("hidden.bias", HiddenBias(), OutputWeight()),
          part("output.weight", OutputWeight(), OutputBias()),
          part("output.bias", OutputBias(), weights_.size())};
}

}  // namespace ddl::digits
