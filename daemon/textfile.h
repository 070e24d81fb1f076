// Writes the metrics to a file now and then, for collectors that read files (node_exporter's textfile collector).
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/result.h"

namespace vuda::daemon {

// Readers see the old text or the new one, never a part: it is written to PATH.tmp beside it, which then takes its
// name. The file has mode 0644. Errors: those of open(2), write(2) and rename(2).
Status write_textfile(const std::string& path, const std::string& text);

// Removes PATH.tmp, which a daemon that was killed in the middle of write_textfile() has left.
void remove_leftover(const std::string& path);

// A thread of its own: the folder may lie on a disk that hangs, and the loop must not.
class TextfileWriter {
 public:
    // `what` is for the log.
    explicit TextfileWriter(std::string what = "metrics.textfile");
    TextfileWriter(const TextfileWriter&) = delete;
    TextfileWriter& operator=(const TextfileWriter&) = delete;
    ~TextfileWriter();  // after the write under way

    // Returns at once. What has not been written yet is replaced; what cannot be written is tried again every second
    // until it can, or is replaced. A failure is logged when it is a new one, and so is its end.
    void write(const std::string& path, std::string text);
    // Removes the file instead: numbers of a daemon that has ended would be taken for news.
    void remove(const std::string& path);

 private:
    using Text = std::optional<std::string>;  // nullopt: remove
    void put(const std::string& path, Text text);
    void run();

    const std::string what_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::string, Text> jobs_;  // by path
    bool ending_ = false;
    // The thread's own.
    std::map<std::string, Text> failed_;
    std::string last_failure_;
    std::thread thread_;
};

}  // namespace vuda::daemon
