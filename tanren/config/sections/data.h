// [data]: how batches are loaded, and in [data.train] and [data.eval] what they are read from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tanren {

struct SourceOptions {               // [data.train], [data.eval]
  std::string kind;                  // csv, images, pairs, tensors, synthetic, text, …
  std::string path;                  // all but synthetic; relative to the config file
  std::string label = "label";       // csv, text_table: column that holds the label
  std::string label_type = "class";  // csv, text_table: class or value (float)
  std::vector<int64_t> shape;  // csv: shape of one sample's inputs; empty: one row of features
  double scale = 1.0;          // csv: inputs are multiplied by it
  double offset = 0.0;         // csv: then added to the inputs
  std::vector<std::string> columns;     // csv: patterns of the features' names; empty: all
  std::vector<std::string> ignore;      // csv: patterns of columns that are not read
  std::vector<std::string> categories;  // csv: patterns of columns of texts, an input for each text
  bool standardize = false;  // csv: number columns are centred and scaled by training's statistics
  std::string missing;       // csv: error, mean, zero; empty: data.eval: as training, else error
  std::string delimiter;     // csv, text_table: one of , ; | : or tab; empty: found
  std::string decimal;       // csv: . or ,; empty: data.eval: as training, else .
  std::vector<std::string> only_classes;  // csv, tensors, images: only these classes, as 0, 1, …
  int64_t classes = 0;  // csv: labels must lie in [0, classes); 0: one more than the largest
  std::vector<std::string>
      fields;           // synthetic: "inputs: float[1,8,8] in [-1, 1]", "labels: int[] in [0, 9]"
  int64_t samples = 0;  // synthetic: number of samples
  // images, pairs: output height and width; one number: a square
  std::vector<int64_t> size = {224};
  int64_t resize =
      0;  // images, pairs: shorter edge before the crop; 0: the smallest that covers it
  std::string crop = "center";  // images, pairs: center, none; in training also random, shift
  std::vector<double> crop_scale = {0.08, 1.0};        // images, pairs, random: share of the area
  std::vector<double> crop_ratio = {0.75, 4.0 / 3.0};  // images, pairs, random: width / height
  int64_t pad = 0;            // images, pairs, shift: black pixels around it before the crop
  double flip = 0.0;          // images, pairs: probability of mirroring in training
  std::vector<double> color;  // images: jitter of brightness, contrast, saturation, hue
  int64_t channels = 3;       // images, pairs: 3 colours, or 1: grey
  std::vector<double> mean;   // images: subtracted from pixels in [0, 1], a number per channel
  std::vector<double> std;    // images: divides the pixels after that
  int64_t max_pixels = 100'000'000;  // images, pairs: a larger file counts as broken
  std::string broken = "error";      // images, pairs: error, skip
  bool side_by_side = false;         // pairs: a file holds both, left half and right half
  bool swap = false;                 // pairs: targets are the inputs, and inputs the targets
  std::string filter = "bilinear";   // pairs: bilinear, bicubic, nearest
  std::string target_filter;         // pairs: of targets; empty: filter
  int64_t target_channels = 0;       // pairs: of targets; 0: channels
  int64_t context = 0;  // text, tokens: targets of a window; text_table: longest text; required
  int64_t stride = 0;   // text, tokens: distance from window to window; 0: context
  std::vector<std::string> include;  // text, tokens: names of files, below the folder; empty: all
  std::vector<std::string> exclude;  // text, tokens: names of files to leave out
  std::vector<double> part;          // text, tokens: share of the files, [low, high); empty: all
  std::string dtype = "auto";        // tokens: auto, uint8, uint16, uint32, int32, int64
  int64_t vocab_size = 0;            // tokens: ids lie in [0, vocab_size); 0: the tokenizer's
  int64_t document_end = -1;         // tokens: the id that ends a document; -1: none
  std::string document_end_token;    // the same by its text in the tokenizer; empty: none
  std::string text = "text";         // text_table: column of the text
  std::string text_pair;             // text_table: column of the second text of a pair; empty: none
  // text, tokens, text_table: file or folder; relative to the config file
  std::string tokenizer;
  std::vector<std::string>
      class_names;  // csv, text_table: names of class 0, 1, …; empty: from the data
  std::string padding = "longest";  // text_table: longest (of the batch), fixed (context)
  std::string encoding = "utf-8";   // not a key; copied from data.encoding
  bool ignores_labels = false;      // not a key; tensors: classes and values are not checked
  // Not keys: data.split, for data whose rows are hashed for split_keys. The opened dataset has all
  // rows.
  double split = 0;
  // data.split, for kinds that are streams (kinds.h). Only one part is opened: training's, or
  // evaluation's if takes_eval_part.
  double stream_split = 0;
  bool takes_eval_part = false;
  std::string cache;  // not a key; text: folder that keeps token ids for later starts; empty: none
};

struct DataOptions {
  int64_t workers = 1;             // loader threads; 0: collate on the step's own thread
  int64_t prefetch = 2;            // batches ready ahead of the step
  bool shuffle = true;             // training order: a pure function of (seed, epoch)
  std::string last = "keep";       // the short last batch of an epoch: keep, drop
  std::string encoding = "utf-8";  // of csv and text_table: utf-8, latin-1
  double split = 0;                // share of data.train that becomes evaluation data; 0: none
  std::string cache;               // not a key; copied to the sources
  SourceOptions train;
  SourceOptions eval;  // kind empty: no evaluation data, except those of `split`
};

inline bool has_evaluation(const DataOptions& o) { return !o.eval.kind.empty() || o.split > 0; }

}  // namespace tanren
