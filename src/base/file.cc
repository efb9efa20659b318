#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace pewter {
namespace {

constexpr int64_t kDirectAlignment = 4096;

Error system_error(const std::string& path, const char* what) {
  const ErrorCode code =
      errno == ENOENT || errno == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument;
  return Error{code, str_cat(path, ": ", what, ": ", std::strerror(errno))};
}

Status read_fully(int fd, const std::string& path, int64_t offset, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd, out.data(), out.size(), offset);
    if (got < 0) {
      if (errno == EINTR) continue;
      return system_error(path, "read failed");
    }
    if (got == 0)
      return Error{ErrorCode::kCorruptData, str_cat(path, ": ends at byte ", offset, ", ",
                                                    out.size(), " more were expected")};
    out = out.subspan(static_cast<size_t>(got));
    offset += got;
  }
  return {};
}

}  // namespace

Result<std::string> read_file(const std::string& path, int64_t limit_bytes) {
  TRY_ASSIGN(const File file, File::open(path));
  if (file.size_bytes() > limit_bytes)
    return Error{ErrorCode::kCorruptData, str_cat(path, ": ", file.size_bytes(),
                                                  " bytes, more than the limit of ", limit_bytes)};
  std::string text(static_cast<size_t>(file.size_bytes()), '\0');
  TRY(file.read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Result<File> File::open(const std::string& path) {
  File file;
  file.path_ = path;
  file.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file.fd_ < 0) return system_error(path, "cannot open");
  struct stat info{};
  if (::fstat(file.fd_, &info) != 0) return system_error(path, "cannot stat");
  if (!S_ISREG(info.st_mode))
    return Error{ErrorCode::kInvalidArgument, path + ": not a regular file"};
  file.size_ = info.st_size;
  file.direct_fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  return file;
}

File::File(File&& other) noexcept { *this = std::move(other); }
File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
  std::swap(direct_fd_, other.direct_fd_);
  return *this;
}
File::~File() {
  if (fd_ >= 0) ::close(fd_);
  if (direct_fd_ >= 0) ::close(direct_fd_);
}

Status File::read_at(int64_t offset, std::span<std::byte> out) const {
  return read_fully(fd_, path_, offset, out);
}

Status File::read_direct(int64_t offset, std::span<std::byte> out) const {
  const auto address = reinterpret_cast<uintptr_t>(out.data());
  const int64_t head = (kDirectAlignment - offset % kDirectAlignment) % kDirectAlignment;
  const int64_t body =
      (static_cast<int64_t>(out.size()) - head) / kDirectAlignment * kDirectAlignment;
  const bool aligned = (address + static_cast<uintptr_t>(head)) % kDirectAlignment == 0;
  if (direct_fd_ < 0 || body <= 0 || !aligned) return read_at(offset, out);
  const auto middle = out.subspan(static_cast<size_t>(head), static_cast<size_t>(body));
  TRY(read_at(offset, out.first(static_cast<size_t>(head))));
  if (!read_fully(direct_fd_, path_, offset + head, middle)) TRY(read_at(offset + head, middle));
  return read_at(offset + head + body, out.subspan(static_cast<size_t>(head + body)));
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return system_error(path, "cannot open");
  struct stat info{};
  MappedFile file;
  if (::fstat(fd, &info) == 0 && info.st_size > 0) {
    void* data = ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      const Error error = system_error(path, "cannot map");
      ::close(fd);
      return error;
    }
    file.data_ = static_cast<const std::byte*>(data);
    file.size_ = static_cast<size_t>(info.st_size);
  }
  ::close(fd);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }
MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}
MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace pewter
