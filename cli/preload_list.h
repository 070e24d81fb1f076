// LD_PRELOAD as a list: ours goes in once, what is there stays. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace vuda::cli {

// What becomes of libvuda_sim.so, the library that stands in for /dev/nvidia*.
enum class SimEntry {
    kKeep,    // nothing is known about the daemon: leave an entry that is there
    kRemove,  // the daemon drives real hardware
    kInsert,  // the daemon's GPU is simulated
};

struct PreloadEdit {
    std::string shim;  // absolute path of libvuda_preload.so
    SimEntry sim_entry = SimEntry::kKeep;
    std::string sim;  // absolute path of libvuda_sim.so; used with kInsert only
};

// ld.so separates entries by colons and spaces alike (ld.so(8)); empty entries mean nothing.
std::vector<std::string> split_preload(std::string_view value);

// Entries are joined by colons. Rules:
//   * entries of other libraries keep their order;
//   * a shim or sim entry is recognised by its file name, so that two builds never end up in one process: the first
//   one's place
//     is taken by ours, further ones go;
//   * sim stands directly behind the shim: the shim calls the next definition of open, ioctl and mmap.
// Editing an edited list changes nothing.
std::string edit_preload(std::string_view current, const PreloadEdit& edit);

// An LD_PRELOAD entry cannot contain its separators and ld.so knows no quoting. '$' would be expanded by ld.so.
bool fits_preload_list(std::string_view path);

}  // namespace vuda::cli
