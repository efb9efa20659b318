// TensorView: a pointer, an element type, a row-major shape with strides. It owns nothing and is
// copied freely; the memory may be the host's or a device's, and only a backend's own code follows
// the pointer.
#pragma once

#include <array>
#include <initializer_list>

#include "tensor/dtype.h"

namespace pewter {

class TensorView {
 public:
  static constexpr int kMaxRank = 4;

  TensorView() = default;
  // Dense and row-major.
  TensorView(void* data, DType dtype, std::initializer_list<int64_t> shape)
      : data_(static_cast<std::byte*>(data)), dtype_(dtype), rank_(static_cast<int>(shape.size())) {
    CHECK(rank_ <= kMaxRank, "rank ", rank_);
    int axis = 0;
    for (const int64_t extent : shape) shape_[at(axis++)] = extent;
    int64_t stride = 1;
    for (int i = rank_ - 1; i >= 0; --i) {
      strides_[at(i)] = stride;
      stride *= shape_[at(i)];
    }
  }

  bool defined() const { return data_ != nullptr; }
  DType dtype() const { return dtype_; }
  int rank() const { return rank_; }
  int64_t dim(int axis) const { return shape_[at(axis < 0 ? axis + rank_ : axis)]; }
  int64_t stride(int axis) const { return strides_[at(axis < 0 ? axis + rank_ : axis)]; }
  int64_t elements() const {
    int64_t count = 1;
    for (int i = 0; i < rank_; ++i) count *= shape_[at(i)];
    return count;
  }
  int64_t bytes() const { return elements() * dtype_bytes(dtype_); }

  std::byte* data() const { return data_; }
  // Typed pointer to the first element; the caller names the element's type, its size is CHECKed.
  template <typename T>
  T* data_as() const {
    CHECK(static_cast<int64_t>(sizeof(T)) == dtype_bytes(dtype_), "data_as: ", sizeof(T),
          " byte elements of ", dtype_name(dtype_));
    return reinterpret_cast<T*>(data_);
  }

  // The sub-tensor with this index along the first axis: one rank lower.
  TensorView operator[](int64_t index) const {
    DCHECK(rank_ > 0 && index >= 0 && index < shape_[0], "index ", index);
    TensorView view = *this;
    view.data_ += index * strides_[0] * dtype_bytes(dtype_);
    view.rank_ = rank_ - 1;
    for (int i = 0; i + 1 < rank_; ++i) {
      view.shape_[at(i)] = shape_[at(i + 1)];
      view.strides_[at(i)] = strides_[at(i + 1)];
    }
    return view;
  }
  // Indexes [begin, end) along an axis; strides stay.
  TensorView slice(int axis, int64_t begin, int64_t end) const {
    CHECK(begin >= 0 && begin <= end && end <= dim(axis), "slice [", begin, ", ", end, ") of ",
          dim(axis));
    TensorView view = *this;
    view.data_ += begin * stride(axis) * dtype_bytes(dtype_);
    view.shape_[at(axis < 0 ? axis + rank_ : axis)] = end - begin;
    return view;
  }
  TensorView first(int64_t rows) const { return slice(0, 0, rows); }

 private:
  static constexpr size_t at(int axis) { return static_cast<size_t>(axis); }

  std::byte* data_ = nullptr;
  DType dtype_ = DType::kF32;
  int rank_ = 0;
  std::array<int64_t, kMaxRank> shape_{}, strides_{};
};

}  // namespace pewter
