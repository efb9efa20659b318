#!/usr/bin/env bash
# Makes a CUDA toolkit, as far as compiling needs one, from NVIDIA's packages on PyPI: about 100 MB to
# fetch. For machines without CUDA and without its Debian packages; compiling needs no GPU.
#
# usage: tools/make_cuda_toolkit.sh FOLDER      then FOLDER/bin/nvcc is the compiler
set -euo pipefail

folder="${1:?usage: tools/make_cuda_toolkit.sh FOLDER}"
packages=(
  nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88
  nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85 nvidia-cuda-culibos==13.0.85
)

if [[ -e "$folder/complete" && "$(cat "$folder/complete")" == "${packages[*]}" ]]; then
  exit 0
fi
rm -rf "$folder"
mkdir -p "$folder"
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check --no-deps "${packages[@]}"
for part in "$folder"/venv/lib/python3*/site-packages/nvidia/cu13/*; do
  mv "$part" "$folder/"
done
ln -s lib "$folder/lib64"
chmod +x "$folder"/bin/* "$folder"/nvvm/bin/*
rm -rf "$folder/venv"
printf '%s' "${packages[*]}" >"$folder/complete"
