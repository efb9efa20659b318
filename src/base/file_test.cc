#include "base/file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/memory_info.h"
#include "base/rng.h"

namespace pewter {
namespace {

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "pewter_file_test_" + std::to_string(::getpid());
    Rng rng(1);
    content_.resize(50'001);
    for (char& c : content_) c = static_cast<char>(rng.bits());
    std::ofstream(path_, std::ios::binary) << content_;
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::string path_, content_;
};

TEST_F(FileTest, ReadsWholeRangesDirectAndMapped) {
  EXPECT_EQ(read_file(path_).value(), content_);
  EXPECT_EQ(read_file(path_, 100).error().code, ErrorCode::kCorruptData);
  const File file = File::open(path_).value();
  EXPECT_EQ(file.size_bytes(), 50'001);
  alignas(4096) static std::array<std::byte, 65536> memory;
  for (const size_t shift : {size_t{0}, size_t{100}, size_t{4095}}) {
    for (const int64_t offset : {0, 1, 4096, 5000}) {
      const size_t size = 40'000;
      std::span<std::byte> out(memory.data() + shift, size);
      ASSERT_TRUE(file.read_direct(offset, out));
      EXPECT_EQ(std::memcmp(out.data(), content_.data() + offset, size), 0);
    }
  }
  const MappedFile mapped = MappedFile::open(path_).value();
  EXPECT_EQ(std::memcmp(mapped.bytes().data(), content_.data(), content_.size()), 0);
}

TEST_F(FileTest, NamesTheFileInErrors) {
  EXPECT_EQ(File::open(path_ + ".no").error().code, ErrorCode::kNotFound);
  EXPECT_NE(File::open(path_ + ".no").error().message.find(path_ + ".no"), std::string::npos);
  std::vector<std::byte> out(100);
  EXPECT_EQ(File::open(path_).value().read_at(50'000, out).error().code, ErrorCode::kCorruptData);
}

TEST(MemoryInfo, IsPlausible) {
  EXPECT_GT(available_memory_bytes(), int64_t{64} << 20);
  EXPECT_EQ(format_bytes(5.62e9), "5.62 GB");
  EXPECT_EQ(format_bytes(999.6), "1.00 kB");
  EXPECT_EQ(format_bytes(12), "12 B");
}

}  // namespace
}  // namespace pewter
