// Checkpoints of the model, not of the run's shape: tensors by logical name in the files of one rank, whoever writes which bytes of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace lockstep::checkpoint {

// A tensor of a checkpoint, or as much of it as this writer holds.
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
  int unit = 0;                                         // files are cut between units
  std::optional<std::vector<std::int64_t>> shape = {};  // of the whole, where `tensor` is a slice of it
  std::int64_t begin = 0;                               // the slice's first number in the flattened whole

  std::vector<std::int64_t> whole_shape() const { return shape ? *shape : tensor.sizes().vec(); }
};

// What one checkpoint holds. `model` and `optimizer` list every tensor on every rank, in the same order.
struct Contents {
  std::vector<NamedTensor> model;      // weights in the precision that counts
  std::vector<NamedTensor> optimizer;  // "<state>.<name>", as the optimizer has them
  std::string state_json;              // step, tokens, data position, fingerprints, loss scale, model config
  // false: every writer holds all of every tensor, and writes an equal share of the bytes.
  // true: a writer writes what it holds; all of them together hold every number once.
  bool sharded = false;
};

// How a checkpoint is cut, the same for every writer and any number of them.
struct Cut {
  std::uint64_t file_bytes = 256u << 20;  // a file takes whole units until it holds so much: each file costs a sync
  // Of a tensor under one checksum: who reads a few numbers reads that much. A rank of 32 holds 29 MB of a block of a 7B model's masters;
  // a manifest has 290 bytes for each.
  std::uint64_t slice_bytes = 4u << 20;
};

// Which writer of how many this process is.
struct Share {
  int index = 0;
  int count = 1;
};

// Saves in the background. One save at a time: begin() waits for the one before it. Not collective, but every writer makes the
// same calls, and all Savers of a folder are made before the first begin(). One thread calls it.
//   begin(): copies what this writer writes to host memory and returns. Where that holds less than it writes, the copy goes on in turns as
//   bytes reach the disk. It is the only time training is blocked.
//   Each writer writes its bytes of model-NNNNN-of-NNNNN.safetensors, optimizer-...; then part-N.json with their checksums. On several
//   machines what it has of pages that it does not fill goes to part-N.edges instead, from where writer 0 puts it in its place.
//   Writer 0 waits for all parts, writes state.json and manifest.json, syncs, renames step-NNNNNN.partial to step-NNNNNN
//   links the best one and removes the oldest beyond `keep`.
// A save that fails (full disk, a writer that died) leaves no half folder and the checkpoint before it untouched; a later begin() works.
class Saver {
 public:
  struct Options {
    std::filesystem::path folder = {};  // <run folder>/checkpoints
    Share share = {};
    // Writers of several machines see the folder through a page cache each, which may write a whole page where a few of its bytes are new:
    // pages that no writer fills by itself are then written by writer 0 alone. One machine has one cache, and needs no such care.
    bool several_machines = false;
    std::int64_t keep = 3;        // 0: all
    bool asynchronous = true;     // false: begin() returns when the save is whole or has failed
    double peer_timeout_s = 300;  // writer 0 gives a save up when no file of it has grown for this long
    double visible_s = 90;        // how long writer 0 looks again where a file of another writer seems to be short: a network file system
                                  // shows sizes of up to a minute ago (NFS: acregmax)
    double closing_grace_s = 2;   // how long the destructor lets writer 0 wait for others
    std::uint64_t staging_bytes = 0;  // host memory that copies take at most; 0: as much as this writer writes
    Cut cut = {};
    // Throws where this run must no longer write in the folder. Writer 0 asks before it cleans up and before a save becomes whole.
    std::function<void()> may_write = {};
  };
  // Writer 0 cleans up what crashed saves left in the folder.
  Saver(base::FileSystem& files, Options options);
  // Finishes writing this writer's share. For the others' it waits only closing_grace_s: call wait() where the save matters.
  ~Saver();

  // What goes wrong, while copying too, is told by wait() or take_error().
  // best: the step of the checkpoint that stays although it is old; folder/best is a link to it.
  void begin(std::int64_t step, const Contents& contents, std::optional<std::int64_t> best = {});
  // Blocks until the last save is whole (on writer 0: renamed). Throws its error as UserError(ExitCode::checkpoint).
  void wait();
  // The error of a finished failed save, if there is one: training may go on. Tells each error once.
  std::optional<std::string> take_error();
  bool busy() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A checkpoint that is there, of any format so far, read-only; reading is thread-safe. The constructor checks the manifest, that every file
// is there in its full size, and all headers; verify() reads everything and compares checksums.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& folder);
  ~Reader();
  const std::filesystem::path& folder() const;
  std::string state_json() const;
  std::vector<std::string> names(std::string_view kind) const;  // kind: "model" or "optimizer"
  std::vector<std::int64_t> shape(std::string_view kind, const std::string& name) const;
  // Copies into `target` (any device, float type); refuses another shape. Compares the tensor's checksum.
  void read(std::string_view kind, const std::string& name, const at::Tensor& target) const;
  // The same for numbers [begin, begin + target.numel()) of the flattened tensor. Reads them and little more: the slices they lie in.
  void read_slice(std::string_view kind, const std::string& name, std::int64_t begin, const at::Tensor& target) const;
  // The tensor as it lies in the mapped file, its checksum compared. Lives as long as this reader; forget() gives its pages back.
  at::Tensor view(std::string_view kind, const std::string& name) const;
  void forget(std::string_view kind, const std::string& name) const;
  // Throws UserError(ExitCode::checkpoint) that names the damaged file. share: of readers that look through it together, each other files.
  void verify(const Share& share = {}) const;
  // Of tensors' files, by this reader so far, whatever was already in memory: what it copied, and what it compared beside that.
  std::uint64_t bytes_read() const;
  std::uint64_t bytes_held() const;  // in all tensors

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The newest whole checkpoint in `folder`, skipping partial and damaged ones (each said in `skipped`).
// look: says what is wrong with a folder, or throws it as a UserError; undefined: all of it is read here.
using LookThrough = std::function<std::string(const std::filesystem::path& folder)>;
std::optional<std::filesystem::path> newest_whole(const std::filesystem::path& folder, std::vector<std::string>* skipped,
                                                  const LookThrough& look = {});

}  // namespace lockstep::checkpoint
