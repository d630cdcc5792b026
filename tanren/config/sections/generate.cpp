#include "tanren/base/text.h"
#include "tanren/config/fields.h"
#include "tanren/config/problems.h"

namespace tanren {

void fields(FieldList& add, GenerateOptions& o) {
  add("prompt", &o.prompt, Identity::free,
      "Prompt of tanren generate and of the sample of tanren eval: text for bytes and with a "
      "tokenizer, else token numbers (\"15496 11\"); empty: the tokenizer's end-of-text token, a "
      "new line for bytes, else token 0.");
  add("tokens", &o.tokens, Identity::free, "Tokens to sample, 0 to 2^20; 0: no sample.");
  add("temperature", &o.temperature, Identity::free,
      "Logits are divided by it, ≥ 0; 0: the most probable token each time.");
  add("top_k", &o.top_k, Identity::free,
      "Sample among the k most probable tokens only; 0: among all.");
  add("top_p", &o.top_p, Identity::free,
      "Sample among the fewest tokens that hold this probability, in (0, 1].");
  add("seed", &o.seed, Identity::free, "Seed of the sample, 0 or more.");
  add("num_beams", &o.num_beams, Identity::free,
      "1: tokens are drawn; above: beam search, which keeps the num_beams most probable texts and "
      "draws nothing.");
  add("length_penalty", &o.length_penalty, Identity::free,
      "Beams that end at different lengths compare by log probability / length^length_penalty.");
  add("stop_token", &o.stop_token, Identity::free,
      "Token (for text: byte) that ends the text and is part of it; -1: none.");
}

void check_generate(Problems& p, const GenerateOptions& o) {
  p.within("generate.tokens", o.tokens, 0, 1 << 20, true);
  p.not_negative("generate.temperature", o.temperature);
  p.within("generate.top_k", o.top_k, 0, kAbsurdWidth, false);
  p.check(o.top_p > 0 && o.top_p <= 1,
          fmt::format("generate.top_p is {}; it must lie in (0, 1]", to_text(o.top_p)));
  p.at_least("generate.seed", o.seed, 0);
  p.within("generate.num_beams", o.num_beams, 1, 1024, true);
  p.within("generate.stop_token", o.stop_token, -1, kAbsurdWidth, false);
  const GenerateOptions plain;
  if (o.num_beams > 1) {
    p.check(o.temperature == plain.temperature && o.top_k == plain.top_k &&
                o.top_p == plain.top_p && o.seed == plain.seed,
            "generate.num_beams above 1 draws nothing; drop generate.temperature, top_k, top_p and "
            "seed, or set num_beams = 1");
  }
  p.check(o.length_penalty == plain.length_penalty || (o.num_beams > 1 && o.stop_token >= 0),
          "generate.length_penalty has no meaning where all texts are of one length; set "
          "generate.num_beams above 1 and generate.stop_token, or drop it");
}

}  // namespace tanren
