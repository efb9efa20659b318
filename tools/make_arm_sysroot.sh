#!/usr/bin/env bash
# Unpacks Debian's arm64 packages into a folder that the cross compiler and qemu take for the root of
# an arm64 machine. The system itself learns of no second architecture: apt runs with a state, a
# package list and a cache of its own, and dpkg only unpacks.
#   make_arm_sysroot.sh FOLDER PACKAGE...
# FOLDER/sysroot is made anew when the list of packages differs from that of the last time.
set -euo pipefail

folder="${1:?usage: make_arm_sysroot.sh FOLDER PACKAGE...}"
shift
mkdir -p "$folder"
folder="$(cd "$folder" && pwd)"
sysroot="$folder/sysroot"
version="$(aarch64-linux-gnu-g++ -dumpversion)"
packages=(libc6-dev "libstdc++-${version%%.*}-dev" "$@")
stamp="$folder/sysroot.packages"
if [[ -f "$stamp" && "$(cat "$stamp")" == "${packages[*]}" ]]; then
  exit 0
fi

apt="$folder/apt"
mkdir -p "$apt/lists/partial" "$apt/archives/partial"
: >"$apt/status" # nothing is installed there, so the whole closure is fetched
cat >"$apt/apt.conf" <<TEXT
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "root";
Dir::State::Lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache::archives "$apt/archives";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
TEXT
export APT_CONFIG="$apt/apt.conf"
# Archives of others in the system's list may lack arm64; what matters is found below or not.
apt-get update -qq || printf 'make_arm_sysroot: apt-get update failed; going on\n' >&2
apt-get install -qq -y --download-only --no-install-recommends "${packages[@]}" >"$apt/log" || {
  cat "$apt/log" >&2
  printf 'make_arm_sysroot: apt-get could not fetch arm64 packages: %s\n' "${packages[*]}" >&2
  exit 1
}

rm -rf "$sysroot"
mkdir -p "$sysroot"
for package in "$apt"/archives/*.deb; do dpkg-deb -x "$package" "$sysroot"; done
# A symlink to /lib/x means this root's /lib/x.
find "$sysroot" -type l -lname '/*' -printf '%p\t%l\n' | while IFS=$'\t' read -r link target; do
  ln -sfn "$(realpath -ms --relative-to="$(dirname "$link")" "$sysroot$target")" "$link"
done
rm -rf "$apt/archives"
printf '%s' "${packages[*]}" >"$stamp"
