// A perceptron with one hidden layer (ReLU) and softmax cross-entropy.
//
// All parameters are one flat array, all gradients another. Not thread safe.
#ifndef DDLAUNCH_WORKER_SDK_EXAMPLES_TRAIN_DIGITS_PERCEPTRON_H_
#define DDLAUNCH_WORKER_SDK_EXAMPLES_TRAIN_DIGITS_PERCEPTRON_H_

#include <cstdint>
#include <span>
#include <vector>

#include "ddl/data_parallel.h"
#include "worker_sdk/examples/train_digits/digits.h"

namespace ddl::digits {

class Perceptron {
 public:
  // Weights uniform in +-sqrt(6 / inputs) (He et al. 2015), from the seed; the
  // biases are zero.
  Perceptron(int hidden, std::uint64_t seed);

  // Runs forward and backward over one image, adds its gradient to the
  // gradients, and returns its loss.
  double AddGradient(const Image& image);
  // The class the model gives to an image.
  int Classify(const Image& image);
  // SGD with momentum: velocity = 0.9 velocity + gradient; the parameters move
  // against it by `rate`.
  void Update(double rate);

  // Views of each layer's parameters and gradients.
  std::vector<Parameter> Parameters();
  std::vector<float>& weights() { return weights_; }
  std::vector<float>& velocity() { return velocity_; }

 private:
  // Where each layer's numbers begin in the flat arrays.
  [[nodiscard]] std::size_t HiddenBias() const;
  [[nodiscard]] std::size_t OutputWeight() const;
  [[nodiscard]] std::size_t OutputBias() const;
  // Fills hidden_ and output_ (before softmax).
  void Forward(const Image& image);

  std::size_t hidden_count_;
  std::vector<float> weights_;
  std::vector<float> gradients_;
  std::vector<float> velocity_;
  std::vector<float> hidden_;        // activations of the last image
  std::vector<float> hidden_error_;  // d loss / d hidden_
  std::array<float, kClasses> output_{};
};

}  // namespace ddl::digits

#endif  // DDLAUNCH_WORKER_SDK_EXAMPLES_TRAIN_DIGITS_PERCEPTRON_H_
