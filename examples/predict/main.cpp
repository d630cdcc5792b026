// Prints the class of each line of standard input, with a model of texts that tanren trained.
//   predict_lines MODEL.tanren.safetensors < LINES

#include "tanren/base/error.h"
#include "tanren/predict/predictor.h"

#include <iostream>
#include <string>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: predict_lines MODEL.tanren.safetensors < LINES\n";
    return 2;
  }
  try {
    const tanren::Predictor predictor(tanren::load_model(argv[1]));
    std::vector<tanren::Sample> samples;
    for (std::string line; std::getline(std::cin, line);) {
      samples.push_back(tanren::Sample::of_text(line));
    }
    for (const tanren::Answer& answer : predictor.predict(samples)) {
      std::cout << predictor.label_of(answer) << " " << answer.score << "\n";
    }
  } catch (const tanren::InputError& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
  return 0;
}
