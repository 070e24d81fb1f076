#include "trace/format.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <random>
#include <string>

namespace vuda::trace {
namespace {

std::string recorded(const char* name) {
    std::ifstream in(std::string(VUDA_TEST_DATA) + "/traces/" + name, std::ios::binary);
    EXPECT_TRUE(in) << name;
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

Record ioctl_record() {
    Record r;
    r.time_us = 24'810'239;
    r.fd = 32;
    r.device = "nvidiactl";
    r.request = 0xc030462b;
    return r;
}

std::string error_of(const std::string& text) {
    const auto trace = parse(text);
    return trace.ok() ? "" : trace.error().text;
}

TEST(Format, WritesWhatTheDocumentationShows) {
    Record r = ioctl_record();
    r.arg.size = 48;
    r.arg.before.assign(48, 0);
    r.arg.before[0] = 0x20;
    r.arg.before[1] = 0x00;
    r.arg.before[2] = 0xd0;
    r.arg.before[3] = 0xc1;
    r.arg.before[12] = 0x6c;
    r.arg.before[13] = 0xa0;
    r.arg.after = r.arg.before;
    r.arg.after[40] = 0x36;
    r.params.size = 3;
    r.params.before = {1, 0, 0};
    r.params.after = r.params.before;
    EXPECT_EQ(write_record(r), "24.810239 32:nvidiactl ioctl c030462b 0 48:c1d00020,*2,a06c>10=36 3:1\n");
    EXPECT_EQ(*parse_record("24.810239 32:nvidiactl ioctl c030462b 0 48:c1d00020,*2,a06c>10=36 3:1"), r);
}

TEST(Format, EveryKindOfRecord) {
    for (const char* line :
         {"0.000000 3:nvidiactl open 0", "0.000001 -1:nvidia0 open 13", "1.500000 3:nvidiactl close",
          "2.000000 3:nvidia-uvm dup 9", "3.000000 14:nvidia0 mmap 0 7f38f5637000 10000 0 3 1",
          "3.000000 14:nvidia0 mmap 12 0 10000 1000 3 1",
          "4.000000 33:nvidia-uvm ioctl 1b 0 "
          "56:aaaaaaaa,bbbbbbbb,cccccccc,dddddddd,20,c1d00020,5c00001c,0,4000000,2,52f000",
          "4.000000 33:nvidia-uvm ioctl 4b 22", "4.000000 33:nvidia-uvm ioctl 21 0 9264/96:0,2,600000>0=1",
          "5.000000 3:nvidiactl ioctl c020462a 0 32: 3/0:"}) {
        const auto record = parse_record(line);
        ASSERT_TRUE(record.ok()) << line << ": " << record.error().text;
        EXPECT_EQ(write_record(*record), std::string(line) + "\n");
    }
}

TEST(Format, RecordedTracesAreCanonical) {
    for (const char* name : {"h200-580.159.04-vulkan-then-cuda.vtrace", "h200-580.159.04-redirected.vtrace"}) {
        const std::string text = recorded(name);
        const auto trace = parse(text);
        ASSERT_TRUE(trace.ok()) << trace.error().text;
        EXPECT_EQ(trace->header.driver, "580.159.04");
        EXPECT_GT(trace->records.size(), 1800u);
        EXPECT_EQ(write(*trace), text) << name;
    }
}

TEST(Format, ErrorsNameTheLine) {
    const std::string head = "vuda-trace 1\ndriver 580.159.04\n# remark\n\n";
    EXPECT_EQ(error_of(head), "");
    EXPECT_EQ(error_of(""), "line 1: not a trace: it does not start with 'vuda-trace 1'");
    EXPECT_EQ(error_of("vuda-trace 2\n"), "line 1: not a trace: it does not start with 'vuda-trace 1'");
    const struct {
        const char* line;
        const char* problem;
    } kCases[] = {
        {"x", "bad time"},
        {"1.5 3:nvidiactl close", "bad time"},
        {"1.000000 z:nvidiactl close", "bad fd"},
        {"1.000000 3:sda close", "bad device name"},
        {"1.000000 3:nvidia/0 close", "bad device name"},
        {"1.000000 3:nvidia012345678901234567890123456789 close", "bad device name"},
        {"1.000000 3:nvidiactl explode", "unknown kind of record"},
        {"1.000000 3:nvidiactl close 1", "text after 'close'"},
        {"1.000000 3:nvidiactl open -1", "bad errno"},
        {"1.000000 3:nvidiactl open 4096", "bad errno"},
        {"1.000000 3:nvidiactl dup -1", "bad new fd"},
        {"1.000000 3:nvidiactl mmap 0 1 2 3", "bad mmap"},
        {"1.000000 3:nvidiactl ioctl zz 0", "bad request"},
        {"1.000000 3:nvidiactl ioctl 1 x", "bad errno"},
        {"1.000000 3:nvidiactl ioctl 1 0 48", "block without ':'"},
        {"1.000000 3:nvidiactl ioctl 1 0 0:", "bad block size"},
        {"1.000000 3:nvidiactl ioctl 1 0 65537:", "bad block size"},
        {"1.000000 3:nvidiactl ioctl 1 0 8/9:", "bad count of captured bytes"},
        {"1.000000 3:nvidiactl ioctl 1 0 8:1,2,3", "words past the end of the block"},
        {"1.000000 3:nvidiactl ioctl 1 0 8:*3", "bad run of zeros"},
        {"1.000000 3:nvidiactl ioctl 1 0 8:*1", "bad run of zeros"},
        {"1.000000 3:nvidiactl ioctl 1 0 8:100000000", "bad word"},
        {"1.000000 3:nvidiactl ioctl 1 0 3:1000000", "words past the end of the block"},
        {"1.000000 3:nvidiactl ioctl 1 0 8:1>2=1", "change past the end of the block"},
        {"1.000000 3:nvidiactl ioctl 1 0 8:1>x=1", "bad change"},
        {"1.000000 3:nvidiactl ioctl 1 0 8: 8: 8:", "text after the record"},
        {"1.000000 3:nvidiactl close\ndriver 1", "bad time"},  // header lines come first
    };
    for (const auto& c : kCases) {
        const std::string error = error_of(head + c.line + "\n");
        EXPECT_NE(error.find(c.problem), std::string::npos) << c.line << " gave '" << error << "'";
        EXPECT_EQ(error.find("line "), 0u) << error;
    }
    EXPECT_EQ(error_of(head + "1.000000 3:nvidiactl close\n1.0 3:nvidiactl close\n"), "line 6: bad time");
    EXPECT_EQ(error_of("vuda-trace 1\ndriver \x01\n"),
              "line 2: header value is not printable text of 1 to 200 characters");
    EXPECT_NE(error_of("vuda-trace 1\nnote " + std::string(201, 'x') + "\n"), "");
}

Block random_block(std::mt19937_64& random) {
    Block block;
    block.size = 1 + static_cast<uint32_t>(random() % (random() % 8 == 0 ? 4000 : 70));
    block.before.resize(random() % 4 == 0 ? random() % block.size : block.size);
    for (uint8_t& byte : block.before) byte = random() % 3 == 0 ? static_cast<uint8_t>(random()) : 0;
    block.after = block.before;
    for (int i = 0; i < 3 && !block.after.empty(); ++i) {
        if (random() % 2) block.after[random() % block.after.size()] = static_cast<uint8_t>(random());
    }
    return block;
}

TEST(Format, EveryTraceComesBackAsItWas) {
    std::mt19937_64 random(5);
    const char* kDevices[] = {"nvidiactl", "nvidia0", "nvidia7", "nvidia-uvm", "nvidia-modeset"};
    for (int round = 0; round < 300; ++round) {
        Trace trace;
        if (random() % 2) trace.header.driver = "580.159.04";
        if (random() % 2) trace.header.program = "a program";
        trace.header.pid = static_cast<uint32_t>(random() % 3 == 0 ? 0 : random());
        for (uint64_t i = random() % 3; i > 0; --i) trace.header.notes.emplace_back("note " + std::to_string(i));
        for (uint64_t i = random() % 20; i > 0; --i) {
            Record r;
            r.time_us = random() % 1'000'000'000'000;
            r.fd = static_cast<int32_t>(random() % 1000) - 1;
            r.device = kDevices[random() % std::size(kDevices)];
            r.kind = static_cast<Kind>(random() % 5);
            if (r.kind == Kind::kDup) r.new_fd = static_cast<int32_t>(random() % 1000);
            if (r.kind == Kind::kMmap) {
                r.address = random();
                r.length = random();
                r.offset = random();
                r.prot = static_cast<uint32_t>(random());
                r.flags = static_cast<uint32_t>(random());
            }
            if (r.kind != Kind::kClose && r.kind != Kind::kDup)
                r.error = static_cast<int32_t>(random() % 4 ? 0 : random() % 4096);
            if (r.kind == Kind::kIoctl) {
                r.request = random();
                if (random() % 8) r.arg = random_block(random);
                if (!r.arg.empty() && random() % 2) r.params = random_block(random);
            }
            trace.records.push_back(std::move(r));
        }
        const std::string text = write(trace);
        const auto back = parse(text);
        ASSERT_TRUE(back.ok()) << back.error().text << "\n" << text;
        ASSERT_EQ(*back, trace) << text;
        ASSERT_EQ(write(*back), text);
    }
}

TEST(Format, MutatedTracesNeverHurt) {
    const std::string good = recorded("h200-580.159.04-redirected.vtrace").substr(0, 20000);
    std::mt19937_64 random(9);
    for (int i = 0; i < 2000; ++i) {
        std::string text = good;
        for (int k = 0; k < 3; ++k) text[random() % text.size()] = static_cast<char>(random());
        text.resize(random() % text.size());
        if (const auto trace = parse(text)) {
            EXPECT_TRUE(parse(write(*trace)).ok());
        }
    }
}

}  // namespace
}  // namespace vuda::trace
