// Files: reading one whole, reading ranges from several threads (buffered or direct), and memory
// mapping.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pewter {

// Reads a whole (small) file. Errors: kNotFound, or kCorruptData when larger than limit_bytes.
Result<std::string> read_file(const std::string& path, int64_t limit_bytes = int64_t{1} << 30);

// An open file read by offset; reads may come from several threads at once.
class File {
 public:
  static Result<File> open(const std::string& path);
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  const std::string& path() const { return path_; }
  int64_t size_bytes() const { return size_; }
  // Fills out from the byte offset on. A short read is kCorruptData: the file shrank under us.
  Status read_at(int64_t offset, std::span<std::byte> out) const;
  // As read_at, past the page cache where the file system allows it. Any offset and size: the edges
  // are read through the page cache, the middle in aligned pieces when out is aligned to match.
  Status read_direct(int64_t offset, std::span<std::byte> out) const;

 private:
  File() = default;
  std::string path_;
  int64_t size_ = 0;
  int fd_ = -1;
  int direct_fd_ = -1;  // opened with O_DIRECT, or -1
};

// A read-only mapping of a whole file.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MappedFile() = default;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace pewter
