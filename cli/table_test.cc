#include "cli/table.h"

#include <gtest/gtest.h>

namespace vuda::cli {
namespace {

TEST(Table, AlignsColumnsAndNumbers) {
    Table table({"NAME", "COUNT", "NOTE"});
    EXPECT_TRUE(table.empty());
    table.add({"game", "8/128", "x"});
    table.add({"a-longer-one", "12/128", ""});
    EXPECT_FALSE(table.empty());
    EXPECT_EQ(table.to_string(),
              "NAME           COUNT  NOTE\n"
              "game           8/128  x\n"
              "a-longer-one  12/128\n");
}

TEST(Table, ShortAndLongRowsAreFitted) {
    Table table({"A", "B"});
    table.add({"1"});
    table.add({"1", "b", "surplus"});
    EXPECT_EQ(table.to_string(), "A  B\n1\n1  b\n");
}

TEST(Table, MultiByteTextCountsCharacters) {
    Table table({"N", "B"});
    table.add({"\xc3\xa4\xc3\xb6", "x"});
    EXPECT_EQ(table.to_string(), "N   B\n\xc3\xa4\xc3\xb6  x\n");
}

TEST(Printable, TerminalControlsAndBrokenUtf8AreDefused) {
    EXPECT_EQ(printable("plain text_1"), "plain text_1");
    EXPECT_EQ(printable("a\x1b[31mred\n\t\x7f"), "a?[31mred???");
    EXPECT_EQ(printable("\xc3\xa4"), "\xc3\xa4");
    EXPECT_EQ(printable("\xc2\x9b"), "?");   // CSI as a C1 control
    EXPECT_EQ(printable("\xff\xc3"), "??");  // not UTF-8, cut short
    EXPECT_EQ(printable("\xc0\xaf\xe2\x82"), "????");
    EXPECT_EQ(printable(std::string_view("\0x", 2)), "?x");
}

}  // namespace
}  // namespace vuda::cli
