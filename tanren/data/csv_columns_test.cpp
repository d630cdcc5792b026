// csv: which columns are read, and what becomes of texts, missing cells and units.
#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/data/dataset.h"
#include "tanren/data/split_source.h"
#include "tanren/data/table_file.h"

#include <ATen/ATen.h>

#include <map>
#include <numeric>

namespace tanren {
namespace {

using testing::TemporaryFolder;
using Texts = std::vector<std::string>;

class CsvColumns : public ::testing::Test {
 protected:
  std::unique_ptr<Dataset> open(const std::string& text, SourceOptions options = {},
                                const DataInfo* train = nullptr) {
    options.kind = "csv";
    if (options.path.empty()) options.path = "rows.csv";
    options.path = folder_.file(options.path, text);
    return open_dataset(options, train == nullptr ? "data.train" : "data.eval", train);
  }
  std::string error(const std::string& text, const SourceOptions& options = {},
                    const DataInfo* train = nullptr) {
    auto said = testing::error_of<DataError>([&] { open(text, options, train); });
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
    return said;
  }
  static Batch all_of(const Dataset& dataset) {
    std::vector<int64_t> indices(static_cast<size_t>(dataset.size()));
    std::iota(indices.begin(), indices.end(), 0);
    return dataset.collate(indices).batch;
  }
  static std::vector<float> inputs_of(const Dataset& dataset) {
    const at::Tensor inputs = all_of(dataset)["inputs"].contiguous();
    return {inputs.const_data_ptr<float>(), inputs.const_data_ptr<float>() + inputs.numel()};
  }
  static std::vector<int64_t> classes_of(const Dataset& dataset) {
    const at::Tensor labels = all_of(dataset)["labels"].contiguous();
    return {labels.const_data_ptr<int64_t>(), labels.const_data_ptr<int64_t>() + labels.numel()};
  }

  TemporaryFolder folder_;
};

TEST_F(CsvColumns, that_are_not_there_are_refused_with_those_that_are_and_the_nearest) {
  const std::string text = "label,height,width,name\n0,1,2,x\n";
  TANREN_EXPECT_CONTAINS(error(text, {.columns = {"height", "with"}}),
                         "rows.csv:1: there is no column \"with\", which data.train.columns names; "
                         "the columns are height, width, name; nearest: width");
  TANREN_EXPECT_CONTAINS(error(text, {.ignore = {"nam"}}),
                         "there is no column \"nam\", which data.train.ignore names");
  TANREN_EXPECT_CONTAINS(error(text, {.ignore = {"name"}, .categories = {"colour"}}),
                         "there is no column \"colour\", which data.train.categories names");
  TANREN_EXPECT_CONTAINS(
      error(text, {.ignore = {"name"}, .categories = {"name"}}),
      "data.train.categories names \"name\", which data.train.ignore leaves out");
  TANREN_EXPECT_CONTAINS(error(text, {.columns = {"height"}, .categories = {"name"}}),
                         "which data.train.columns leaves out");
  TANREN_EXPECT_CONTAINS(error(text, {.columns = {"label"}}), "which is the label column");
  TANREN_EXPECT_CONTAINS(error(text, {.ignore = {"*"}}), "data.train.ignore leaves no column");
  TANREN_EXPECT_CONTAINS(error("label,a,a\n0,1,2\n", {.columns = {"a"}}), "two columns are called");
}

TEST_F(CsvColumns, of_no_rows_are_refused_as_such) {
  TANREN_EXPECT_CONTAINS(error("label,a\n", {.standardize = true}), "there are no rows below the");
  TANREN_EXPECT_CONTAINS(error("", {.standardize = true}), "the file is empty");
}

TEST_F(CsvColumns, of_texts_are_refused_unless_they_are_ignored_or_categories) {
  const std::string text = "label,a,name\n0,1,x\n";
  TANREN_EXPECT_CONTAINS(error(text),
                         ":2: column name: \"x\" is not a number; fix the cell, or add the column "
                         "to data.train.categories or data.train.ignore");
  TANREN_EXPECT_CONTAINS(error(text, {.standardize = true}), ":2: column name: \"x\" is not a");
  EXPECT_EQ(inputs_of(*open(text, {.ignore = {"name"}})), (std::vector<float>{1}));
  EXPECT_EQ(open(text, {.columns = {"a"}})->info().feature_names, Texts{"a"});
  EXPECT_EQ(inputs_of(*open(text, {.categories = {"n*"}})), (std::vector<float>{1, 1}));
}

TEST_F(CsvColumns, are_chosen_by_patterns_and_keep_the_order_of_the_file) {
  const std::string text = "x2,label,id,x1,y\n1,0,a,2,3\n4,1,b,5,6\n";
  const auto chosen = open(text, {.columns = {"x?"}});
  EXPECT_EQ(chosen->info().feature_names, (Texts{"x2", "x1"}));
  EXPECT_EQ(inputs_of(*chosen), (std::vector<float>{1, 2, 4, 5}));
  EXPECT_EQ(inputs_of(*open(text, {.ignore = {"id", "y"}})), inputs_of(*chosen));
  EXPECT_EQ(open(text, {.shape = {1, 2}, .columns = {"x?"}})->info().input_shape,
            (std::vector<int64_t>{1, 2}));
  TANREN_EXPECT_CONTAINS(error(text, {.shape = {3}, .columns = {"x?"}}), "there are 2 inputs");
}

TEST_F(CsvColumns, of_evaluation_are_those_of_training_by_name) {
  const DataInfo train = open("a,b,id,label\n1,2,x,0\n3,4,y,1\n", {.ignore = {"id"}})->info();
  const auto eval = open("label;more;b;a\n1;x;20;10\n", {}, &train);
  EXPECT_EQ(inputs_of(*eval), (std::vector<float>{10, 20}));
  EXPECT_EQ(eval->info().feature_names, (Texts{"a", "b"}));
  TANREN_EXPECT_CONTAINS(error("a,c,label\n1,2,0\n", {}, &train),
                         "rows.csv:1: there is no column \"b\"; data.train was read by a, b, and "
                         "this file has a, c, label");
  TANREN_EXPECT_CONTAINS(error("a,b,a,label\n1,2,3,0\n", {}, &train), "two columns are called");
}

TEST_F(CsvColumns, of_training_are_no_labels_of_an_evaluation) {
  const DataInfo train = open("a,b,label\n1,2,0\n3,4,1\n", {.columns = {"a", "b"}})->info();
  TANREN_EXPECT_CONTAINS(error("a,b,label\n1,2,0\n", {.label = "b"}, &train),
                         "rows.csv:1: data.eval.label names \"b\", which is a feature of "
                         "data.train; name the column of the labels");
}

TEST_F(CsvColumns, of_a_file_that_is_read_twice_are_the_same_unless_it_changes) {
  SourceOptions options{.kind = "csv"};
  const std::string what = "data.train";
  const auto reading = [&](const std::string& text) {
    options.path = folder_.file("twice.csv", text);
    TableFile file(options, what, {"label"}, ".");
    while (file.next()) continue;
    return file.reading();
  };
  const auto first = reading("label,a\n0,1\n1,2\n");
  EXPECT_EQ(first.rows, 2);
  EXPECT_TRUE(first == reading("label,a\n0,1\n1,2\n"));
  EXPECT_FALSE(first == reading("label,a\n0,1\n1,3\n"));
  EXPECT_FALSE(first == reading("label,a\n0,1\n"));
  EXPECT_FALSE(first == reading("label,b\n0,1\n1,2\n"));
  EXPECT_FALSE(first == reading("label;a\n0;1\n1;2\n"));
}

TEST_F(CsvColumns, of_tabs_alone_are_a_row_of_missing_values) {
  const auto data =
      open("a\tb\tlabel\n1\t2\t0\n\t\t1\n\n", {.label_type = "class", .missing = "zero"});
  EXPECT_EQ(inputs_of(*data), (std::vector<float>{1, 2, 0, 0}));
  TANREN_EXPECT_CONTAINS(error("a\tb\tlabel\n1\t2\t0\n\t\t\n", {.missing = "zero"}),
                         "rows.csv:3: column label is empty");
}

TEST_F(CsvColumns, of_no_chosen_class_are_refused_by_the_class) {
  TANREN_EXPECT_CONTAINS(error("label,a\nx,1\ny,2\n", {.standardize = true, .only_classes = {"z"}}),
                         "no sample has the class z of only_classes");
}

TEST_F(CsvColumns, may_have_a_header_whose_first_cell_goes_over_lines) {
  const auto data = open("\"a, in\nmetres\";label;b\n1;0;2\n3;1;4\n");
  EXPECT_EQ(data->info().feature_names, (Texts{"a, in\nmetres", "b"}));
  TANREN_EXPECT_CONTAINS(error("\"a;label\n1;0\n"), "nothing closes a quote of the header");
}

TEST_F(CsvColumns, are_separated_by_what_is_found_or_said) {
  const auto plain = inputs_of(*open("label,a,b\n0,1,2\n1,3,4\n"));
  for (const std::string& text :
       {std::string("label;a;b\n0;1;2\n1;3;4\n"), std::string("label\ta\tb\n0\t1\t2\n1\t3\t4\n"),
        std::string("label|a|b\n0|1|2\n1|3|4\n"),
        std::string("\xEF\xBB\xBF\"label\";a;\"b\"\r\n0;\"1\";2\r\n1;3;4\r\n"),
        std::string("label;\"a;a\";b\n0;1;2\n1;3;4\n")}) {
    EXPECT_EQ(inputs_of(*open(text)), plain) << text;
  }
  EXPECT_EQ(inputs_of(*open("label:a:b\n0:1:2\n1:3:4\n", {.delimiter = ":"})), plain);
  EXPECT_EQ(inputs_of(*open("label\ta\tb\n0\t1\t2\n1\t3\t4\n", {.path = "rows.tsv"})), plain);
  EXPECT_EQ(inputs_of(*open("label,a,b\n0,1,2\n1,3,4\n", {.path = "rows.tsv"})), plain)
      << "as it was read before";
  TANREN_EXPECT_CONTAINS(error("label,a\n0,1\n", {.delimiter = ";"}), "there is no column");
}

TEST_F(CsvColumns, with_decimal_commas_are_read_if_it_is_said_and_else_refused_with_how) {
  const std::string text = "label;a;b\n0;3,5;-1\n1;1,25e1;2\n";
  TANREN_EXPECT_CONTAINS(error(text),
                         ":2: column a: \"3,5\" is not a number; fix the cell, or set "
                         "data.train.decimal = \",\"");
  const auto train = open(text, {.decimal = ","});
  EXPECT_EQ(inputs_of(*train), (std::vector<float>{3.5, -1, 12.5, 2}));
  TANREN_EXPECT_CONTAINS(error("label;a\n0;3.5\n", {.decimal = ","}), "\"3.5\" is not a number");
  const std::string quoted = "label,a\n0,\"3,5\"\n";
  EXPECT_EQ(inputs_of(*open(quoted, {.delimiter = ",", .decimal = ","})),
            (std::vector<float>{3.5}));
  EXPECT_EQ(error(quoted).find("decimal"), std::string::npos) << "it would find no column";
  const DataInfo info = train->info();
  EXPECT_EQ(inputs_of(*open(text, {}, &info)), inputs_of(*train)) << "as data.train";
  EXPECT_EQ(inputs_of(*open("a,b,label\n3.5,1,0\n", {.decimal = "."}, &info)),
            (std::vector<float>{3.5, 1}));
}

TEST_F(CsvColumns, may_hold_delimiters_and_line_ends_in_quotes) {
  const std::string text =
      "label,note,a\n0,\"one, two\",1\n1,\"first\nsecond \"\"x\"\"\",2\n0,plain,x\n";
  TANREN_EXPECT_CONTAINS(error(text, {.ignore = {"note"}}), "rows.csv:5: column a");
  const auto data = open(text.substr(0, text.size() - 1 - std::string("0,plain,x").size()),
                         {.categories = {"note"}});
  EXPECT_EQ(data->info().table->columns[0].values, (Texts{"first\nsecond \"x\"", "one, two"}));
  TANREN_EXPECT_CONTAINS(error("label,a\n0,1\n1,\"2\n0,3\n"),
                         "rows.csv:3: nothing closes the quote of \"2");
  TANREN_EXPECT_CONTAINS(error("label,a\n0,\"1\"2\n"),
                         "rows.csv:2: a cell goes on after its closing quote with \"2\"");
  TANREN_EXPECT_CONTAINS(error("label,\"a\n0,1\n"), "rows.csv:1: nothing closes a quote of the");
}

TEST_F(CsvColumns, that_are_no_utf_8_are_refused_by_line_and_read_as_latin_1) {
  const std::string text = "label,h\xf6he,ort\n0,1,K\xf6ln\n1,2,Bonn\n";
  TANREN_EXPECT_CONTAINS(error(text), "rows.csv:1: byte 8 (0xF6) is no UTF-8; convert the file");
  const auto data =
      open(text, {.columns = {"h\xc3\xb6he", "ort"}, .categories = {"ort"}, .encoding = "latin-1"});
  EXPECT_EQ(data->info().feature_names[0], "h\xc3\xb6he");
  EXPECT_EQ(data->info().table->columns[1].values, (Texts{"Bonn", "K\xc3\xb6ln"}));
}

TEST_F(CsvColumns, of_categories_are_an_input_for_each_text_of_training) {
  const auto train = open("label,c,a\n0,red,1\n1, blue ,2\n0,red,3\n", {.categories = {"c"}});
  EXPECT_EQ(train->info().input_shape, (std::vector<int64_t>{3}));
  EXPECT_EQ(train->info().feature_names, (Texts{"c", "a"}));
  EXPECT_EQ(inputs_of(*train), (std::vector<float>{0, 1, 1, 1, 0, 2, 0, 1, 3}));
  const DataInfo info = train->info();
  EXPECT_EQ(inputs_of(*open("label,c,a\n0,green,4\n1,blue,5\n", {}, &info)),
            (std::vector<float>{0, 0, 4, 1, 0, 5}))
      << "an unknown text is all zeros";
  TANREN_EXPECT_CONTAINS(error("label,c\n0,red\n1,\n", {.categories = {"c"}}),
                         ":3: column c is empty; fill it or drop the row, or set "
                         "data.train.missing");
  std::string many = "label,c\n";
  for (int i = 0; i < 1001; ++i) many += "0,t" + std::to_string(i) + "\n";
  TANREN_EXPECT_CONTAINS(error(many, {.categories = {"c"}}),
                         "rows.csv:1002: column c has more than 1000 different texts");
  TANREN_EXPECT_CONTAINS(error("label,c\n0,?\n", {.categories = {"c"}, .missing = "zero"}),
                         "column c has no value in any row; add it to data.train.ignore");
}

// The numbers are StandardScaler's of scikit-learn 1.9.1 on the same rows.
TEST_F(CsvColumns, are_standardised_as_scikit_learn_does_it) {
  const std::string text =
      "x,year,same,c,label\n1.5,2020,7,u,0\n-2.25,2021,7,v,1\n"
      "4,2023,7,u,0\n0.125,2019.5,7,u,1\n";
  const auto train = open(text, {.categories = {"c"}, .standardize = true});
  const std::vector<TableColumn>& columns = train->info().table->columns;
  EXPECT_DOUBLE_EQ(columns[0].mean, 0.84375);
  EXPECT_DOUBLE_EQ(columns[0].deviation, 2.2627675946725065);
  EXPECT_DOUBLE_EQ(columns[1].mean, 2020.875);
  EXPECT_DOUBLE_EQ(columns[1].deviation, 1.340475661845451);
  EXPECT_EQ(columns[2].mean, 7);
  EXPECT_EQ(columns[2].deviation, 1) << "constant";
  const std::vector<float> expected = {0.2900209426879883f,  -0.6527533531188965f, 0, 1, 0,
                                       -1.367241621017456f,  0.09325048327445984f, 0, 0, 1,
                                       1.3948626518249512f,  1.58525812625885f,    0, 1, 0,
                                       -0.3176420032978058f, -1.0257552862167358f, 0, 1, 0};
  const auto made = inputs_of(*train);
  ASSERT_EQ(made.size(), expected.size());
  for (size_t i = 0; i < made.size(); ++i) EXPECT_FLOAT_EQ(made[i], expected[i]) << i;
  // Evaluation data use the means and deviations that were measured on the training data.
  const DataInfo info = train->info();
  const auto eval = inputs_of(*open("label,c,same,year,x\n0,w,9,2020.875,0.84375\n", {}, &info));
  const std::vector<float> wanted = {0, 0, 2, 0, 0};
  ASSERT_EQ(eval.size(), wanted.size());
  for (size_t i = 0; i < eval.size(); ++i) EXPECT_NEAR(eval[i], wanted[i], 1e-6) << i;
}

TEST_F(CsvColumns, lack_values_as_it_is_said) {
  const std::string text = "label,a,c\n0,1,u\n1,,v\n0,NA,?\n1,5, null \n0,nan,u\n1,N/A,v\n";
  TANREN_EXPECT_CONTAINS(error(text, {.categories = {"c"}}),
                         ":3: column a is empty; fill it or drop the row, or set "
                         "data.train.missing to \"mean\" or \"zero\"");
  TANREN_EXPECT_CONTAINS(error("label,a\n0,NaN\n"), "column a is NaN; fill it or drop the row");
  TANREN_EXPECT_CONTAINS(error("label,a\n0,-inf\n", {.missing = "zero"}), "column a is -inf;");
  const auto mean = open(text, {.categories = {"c"}, .missing = "mean"});
  EXPECT_EQ(inputs_of(*mean),
            (std::vector<float>{1, 1, 0, 3, 0, 1, 3, 0, 0, 5, 0, 0, 3, 1, 0, 3, 0, 1}));
  const auto zero = open(text, {.categories = {"c"}, .missing = "zero"});
  EXPECT_EQ(inputs_of(*zero)[3], 0);
  const auto scaled = open(text, {.categories = {"c"}, .standardize = true, .missing = "mean"});
  EXPECT_EQ(inputs_of(*scaled)[3], 0) << "the mean is in the middle";
  EXPECT_EQ(scaled->info().table->columns[0].deviation, 2) << "of the cells that are there";
  const DataInfo info = mean->info();
  EXPECT_EQ(inputs_of(*open("label,a,c\n0,,u\n", {}, &info)), (std::vector<float>{3, 1, 0}))
      << "training's mean";
  TANREN_EXPECT_CONTAINS(error("label,a\n0,\n1,?\n", {.missing = "mean"}),
                         "column a has no value in any row");
  for (const char* missing : {"", "NA", "?"}) {
    TANREN_EXPECT_CONTAINS(
        error("label,a\n0,1\n" + std::string(missing) + ",2\n", {.missing = "zero"}),
        "rows.csv:3: column label is ");
  }
}

TEST_F(CsvColumns, of_labels_may_be_names_in_sorted_order) {
  const auto train = open("kind,a\nsetosa,1\nvirginica,2\nsetosa,3\nbeach,4\n", {.label = "kind"});
  EXPECT_EQ(train->info().class_names, (Texts{"beach", "setosa", "virginica"}));
  EXPECT_EQ(train->info().outputs, 3);
  EXPECT_EQ(classes_of(*train), (std::vector<int64_t>{1, 2, 1, 0}));
  EXPECT_EQ(train->class_counts(), (std::vector<int64_t>{1, 2, 1}));
  const DataInfo info = train->info();
  const auto eval = open("kind,a\nvirginica,2\n", {.label = "kind"}, &info);
  EXPECT_EQ(classes_of(*eval), (std::vector<int64_t>{2}));
  EXPECT_EQ(eval->info().outputs, 3);
  TANREN_EXPECT_CONTAINS(error("kind,a\nsetosa,1\nrose,2\n", {.label = "kind"}, &info),
                         "rows.csv:3: label \"rose\" is none of the classes beach, setosa, "
                         "virginica that data.train has; fix it");
  const auto given = open("label,a\nb,1\na,2\n", {.class_names = {"c", "b", "a"}});
  EXPECT_EQ(classes_of(*given), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(given->info().outputs, 3);
}

TEST_F(CsvColumns, of_labels_are_all_names_or_all_numbers) {
  TANREN_EXPECT_CONTAINS(error("label,a\n0,1\nx,2\n"),
                         ":3: column label: \"x\" is not a number; classes are numbers from 0 on, "
                         "or all of them names");
  TANREN_EXPECT_CONTAINS(error("label,a\nx,1\n1,2\n"),
                         ":3: label 1 is a number, and those before it are names, such as \"x\"");
  const auto listed = open("label,a\nx,1\n1,2\n", {.class_names = {"1", "x"}});
  EXPECT_EQ(classes_of(*listed), (std::vector<int64_t>{1, 0}));
  TANREN_EXPECT_CONTAINS(error("label,a\nx,1\ny,2\n", {.classes = 3}),
                         "the label column has 2 names, data.train.classes is 3");
  const DataInfo numbers = open("label,a\n0,1\n1,2\n")->info();
  TANREN_EXPECT_CONTAINS(error("label,a\nx,1\n", {}, &numbers), "or names that data.train has");
  EXPECT_TRUE(numbers.class_names.empty());
  EXPECT_EQ(numbers.table, nullptr) << "a table of numbers needs no encoding";
}

TEST_F(CsvColumns, of_labels_give_the_classes_of_only_classes_by_name) {
  const std::string text = "label,a\nx,1\ny,20\nz,3\nx,5\n";
  const auto train = open(text, {.standardize = true, .only_classes = {"z", "x"}});
  EXPECT_EQ(classes_of(*train), (std::vector<int64_t>{1, 0, 1}));
  EXPECT_EQ(train->info().class_names, (Texts{"z", "x"}));
  EXPECT_EQ(train->info().table->columns[0].mean, 3) << "rows of other classes are not trained on";
  TANREN_EXPECT_CONTAINS(testing::error_of<InputError>([&] {
                           open(text, {.only_classes = {"z", "w"}});
                         }),
                         "no sample has the class w of only_classes; it has x, y, z");
  const DataInfo info = train->info();
  const auto eval = open(text, {.only_classes = {"z", "x"}}, &info);
  EXPECT_EQ(classes_of(*eval), classes_of(*train));
}

TEST_F(CsvColumns, are_measured_on_the_part_of_a_split_that_is_trained_on) {
  std::string text = "label,a,c\n";
  for (int i = 0; i < 40; ++i) {
    text += std::string(i % 2 ? "x" : "y") + "," + std::to_string(i * i) + ",t" +
            std::to_string(i) + "\n";
  }
  for (const Texts& only : {Texts{}, Texts{"y", "x"}}) {
    SourceOptions options{.kind = "csv",
                          .path = folder_.file("rows.csv", text),
                          .categories = {"c"},
                          .standardize = true,
                          .only_classes = only};
    options.split = 0.25;
    const SplitSource parts = open_split(DatasetRegistry(), options, "data.train");
    EXPECT_EQ(parts.train->size(), 30);
    const at::Tensor train = all_of(*parts.train)["inputs"], eval = all_of(*parts.eval)["inputs"];
    EXPECT_EQ(train.size(1), 31) << "a number, and the texts of the rows that are trained on";
    EXPECT_NEAR(train.select(1, 0).mean().item<double>(), 0, 1e-5);
    EXPECT_NEAR(train.select(1, 0).square().mean().item<double>(), 1, 1e-5);
    EXPECT_EQ(train.narrow(1, 1, 30).sum().item<double>(), 30);
    EXPECT_EQ(eval.narrow(1, 1, 30).sum().item<double>(), 0) << "texts that training does not know";
  }
}

TEST_F(CsvColumns, are_part_of_what_a_resumed_run_compares) {
  const auto parts = [&](const std::string& text, const SourceOptions& options) {
    std::map<std::string, uint64_t> found;
    for (const DataPart& part : open(text, options)->parts()) found[part.name] = part.hash;
    return found;
  };
  const SourceOptions options{.categories = {"c"}};
  const auto base = parts("label,c\nx,u\ny,v\n", options);
  EXPECT_EQ(parts("label,c\nx,u\ny,v\n", options), base);
  const auto renamed = parts("label,c\nx,u\nz,v\n", options);
  EXPECT_NE(renamed.at("class names"), base.at("class names"));
  EXPECT_EQ(renamed.at("labels"), base.at("labels"));
  const auto other = parts("label,c\nx,u\ny,w\n", options);
  EXPECT_NE(other.at("columns and what was measured"), base.at("columns and what was measured"));
  EXPECT_EQ(other.at("inputs"), base.at("inputs"));
  const auto plain = parts("label,a,b\n0,1,1\n1,2,2\n", {});
  EXPECT_EQ(plain.size(), 4u) << "names of fields, inputs, labels, columns";
  const auto swapped = parts("label,b,a\n0,1,1\n1,2,2\n", {});  // issue 26
  EXPECT_NE(swapped.at("columns"), plain.at("columns"));
  EXPECT_EQ(swapped.at("inputs"), plain.at("inputs"));
}

TEST_F(CsvColumns, of_many_rows_are_all_there) {
  std::string text = "label,a\n";
  constexpr int kRows = 1'100'000;  // more than a block holds
  text.reserve(kRows * 10);
  for (int i = 0; i < kRows; ++i) text += "0," + std::to_string(i % 1000) + "\n";
  const auto data = open(text);
  ASSERT_EQ(data->size(), kRows);
  const Batch some = data->collate({0, 999, 1'048'575, 1'048'576, kRows - 1}).batch;
  EXPECT_TRUE(at::equal(some["inputs"].flatten(), at::tensor({0.f, 999.f, 575.f, 576.f, 999.f})));
}

}  // namespace
}  // namespace tanren
