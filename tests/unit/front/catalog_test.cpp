// The catalogue of explained failures: its own order, and what it makes of messages that people paste.
#include "front/catalog/catalog.h"

#include <gtest/gtest.h>

#include <set>

#include "base/text.h"

namespace lockstep::catalog {
namespace {

TEST(Catalog, EveryEntryIsWhole) {
  std::string before;
  std::set<std::string_view> patterns;
  for (const Entry& entry : entries()) {
    const std::string code(entry.code);
    EXPECT_TRUE(code.size() == 6 && code.starts_with("LS-") && base::parse_integer(code.substr(3))) << code;
    EXPECT_LT(before, code) << "by code, each once";
    before = code;
    for (const std::string_view text : {entry.title, entry.symptom, entry.cause, entry.fix}) EXPECT_FALSE(text.empty()) << code;
    EXPECT_TRUE(entry.symptom.ends_with('.') && entry.cause.ends_with('.') && !entry.fix.ends_with('.') && !entry.title.ends_with('.'))
        << code;
    for (const std::string_view pattern : entry.patterns) {
      EXPECT_EQ(base::lower(pattern), pattern) << code;
      EXPECT_TRUE(patterns.insert(pattern).second) << code << " shares the pattern " << pattern;
    }
  }
}

TEST(Catalog, CodesInAnySpelling) {
  EXPECT_EQ(find("LS-401")->title, "GPU memory is full");
  EXPECT_EQ(find("ls-401"), find("LS-401"));
  EXPECT_EQ(find("401"), find("LS-401"));
  EXPECT_EQ(find("LS-999"), nullptr);
  EXPECT_EQ(find(""), nullptr);
}

TEST(Catalog, StarsStandForAnythingWithinALine) {
  EXPECT_TRUE(matches("port 29500 is in use by pid 1", "port * is in use by"));
  EXPECT_FALSE(matches("port 29500 is free", "port * is in use by"));
  EXPECT_TRUE(matches("abc", "abc"));
  EXPECT_TRUE(matches("a1b2c", "a*b*c"));
  EXPECT_FALSE(matches("c2b1a", "a*b*c"));
}

struct Message {
  const char* text;
  const char* code;  // empty: nothing is known of it
};
constexpr Message messages[] = {
    // CUDA and PyTorch
    {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB", "LS-401"},
    {"RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "LS-401"},
    {"RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory", "LS-402"},
    {"RuntimeError: No CUDA GPUs are available", "LS-201"},
    {"RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU", "LS-201"},
    {"AssertionError: Torch not compiled with CUDA enabled", "LS-105"},
    {"RuntimeError: The NVIDIA driver on your system is too old (found version 11040)", "LS-202"},
    {"CUDA error: CUDA driver version is insufficient for CUDA runtime version", "LS-202"},
    {"Failed to initialize NVML: Driver/library version mismatch", "LS-203"},
    {"NVRM: Xid (PCI:0000:04:00): 79, GPU has fallen off the bus.", "LS-204"},
    {"RuntimeError: CUDA error: invalid device ordinal", "LS-205"},
    {"RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable", "LS-206"},
    {"CUDA error: uncorrectable ECC error encountered", "LS-211"},
    {"RuntimeError: CUDA error: no kernel image is available for execution on the device", "LS-212"},
    {"RuntimeError: CUDA error: an illegal memory access was encountered", "LS-213"},
    {"RuntimeError: CUDA error: device-side assert triggered", "LS-213"},
    {"lockstep-worker: error while loading shared libraries: libtorch_cpu.so: cannot open shared object file", "LS-104"},
    {"./lockstep-worker: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found", "LS-104"},
    // NCCL
    {"torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error, NCCL version 2.21.5", "LS-302"},
    {"ncclInvalidUsage: This usually reflects invalid usage of NCCL library.", "LS-302"},
    {"Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 4000", "LS-301"},
    {"[rank2]:[E ProcessGroupNCCL.cpp:616] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE", "LS-303"},
    {"ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.", "LS-308"},
    {"box:1:9 [0] misc/ibvwrap.cc:252 NCCL WARN Call to ibv_reg_mr failed", "LS-409"},
    {"Error while creating shared memory segment /dev/shm/nccl-Xyz (size 9637888)", "LS-404"},
    // rendezvous, Gloo
    {"RuntimeError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: 0, code: -98, name: "
     "EADDRINUSE, message: address already in use",
     "LS-305"},
    {"[c10d] The client socket has failed to connect to [node0]:29500 (errno: 111 - Connection refused).", "LS-304"},
    {"socket.gaierror: [Errno -2] Name or service not known", "LS-306"},
    {"RuntimeError: Gloo connectFullMesh failed with [gloo/transport/tcp/pair.cc:144] no error", "LS-307"},
    {"RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:5", "LS-308"},
    {"ValueError: Default process group has not been initialized, please make sure to call init_process_group.", "LS-311"},
    {"ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, but not set", "LS-311"},
    // systems and schedulers
    {"OSError: [Errno 28] No space left on device", "LS-405"},
    {"OSError: [Errno 24] Too many open files", "LS-406"},
    {"RuntimeError: DataLoader worker (pid 12) is killed by signal: Bus error. It is possible that dataloader's workers are out of "
     "shared "
     "memory.",
     "LS-404"},
    {"slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1.0.", "LS-403"},
    {"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***", "LS-605"},
    {"PermissionError: [Errno 13] Permission denied: '/runs'", "LS-407"},
    // other trainers
    {"RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.", "LS-603"},
    {"{'loss': nan, 'grad_norm': nan, 'learning_rate': 2e-05, 'epoch': 0.1}", "LS-601"},
    {"Exception: Current loss scale already at minimum - cannot decrease scale anymore.", "LS-601"},
    {"safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge", "LS-501"},
    {"huggingface_hub.errors.GatedRepoError: 401 Client Error.", "LS-506"},
    {"RuntimeError: Error(s) in loading state_dict for LlamaForCausalLM: size mismatch for lm_head.weight", "LS-504"},
    {"RuntimeError: Unsloth currently does not work on multi GPU setups", "LS-205"},
    {"RuntimeError: HIP error: invalid device function", "LS-214"},
    // our own
    {"[launch] port 29500 is in use by pid 4711 (python3 train.py). Choose another with --port", "LS-305"},
    {"[launch] LibTorch 2.11.0 is not found: not in LOCKSTEP_LIBTORCH (not set)", "LS-102"},
    {"[launch] LibTorch in /x (found by python3) is version 2.4.0; lockstep was built for 2.11.0.", "LS-103"},
    {"[launch] /x/lockstep-worker is missing or cannot be run. It lies beside `lockstep` in a whole build", "LS-101"},
    {"[comm] NCCL cannot connect rank 1 on cuda:1: x. NCCL_DEBUG=INFO shows more", "LS-302"},
    {"[launch] machine 0 at node0:29500 was not there within 600 s (parallel.timeout_s): Connection refused.", "LS-304"},
    {"[launch] machine 1 (box) is gone: the connection was closed.", "LS-316"},
    {"[launch] LOCKSTEP_SECRET is not set. Machine 0 has printed the command", "LS-312"},
    {"[launch] this machine runs another version of lockstep than machine 0. Run the same build on all machines", "LS-313"},
    {"[launch] this machine is number 2 of 2, but machine 0 (a) waits for 3. Give all of them the same --nnodes", "LS-313"},
    {"[launch] machine 1 is here already, from 10.0.0.2. Every machine needs a --node-rank of its own.", "LS-313"},
    {"[launch] after 20 s (parallel.timeout_s) 1 of 2 machines is here; missing node rank 1.", "LS-318"},
    {"[launch] machine 0 at box0:29500 does not know this machine's LOCKSTEP_SECRET: it belongs to another run", "LS-312"},
    {"[parallel] step 7: the weights of rank 1 differ from rank 0's, first in blocks.0.", "LS-602"},
    {"[launch] the environment names a rank of another launcher (torchrun), but MASTER_ADDR is missing.", "LS-311"},
    // nothing
    {"step 12/100 loss 3.1 lr 1e-3", ""},
    {"", ""},
};

TEST(Catalog, KnownMessages) {
  for (const Message& message : messages) {
    const Entry* entry = recognize(message.text);
    EXPECT_EQ(entry == nullptr ? "" : entry->code, message.code) << message.text;
  }
}

TEST(Catalog, CausesComeBeforeConsequences) {
  const auto hits = scan(
      "step 1\n[rank1] RuntimeError: Connection closed by peer [127.0.0.1]:5\n[rank0] torch.OutOfMemoryError: CUDA out of memory. x\n"
      "[rank2] Connection closed by peer\n");
  ASSERT_EQ(hits.size(), 2u);
  EXPECT_EQ(hits[0].entry->code, "LS-401");
  EXPECT_EQ(hits[0].line, 3u);
  EXPECT_EQ(hits[1].entry->code, "LS-308");
  EXPECT_EQ(hits[1].line, 2u);
  EXPECT_EQ(hits[1].times, 2u);
  EXPECT_EQ(recognize("connection closed by peer\ncuda out of memory")->code, "LS-401");
}

TEST(Catalog, WordsOfOnesOwnFindWhatSpeaksOfThem) {
  const auto codes = [](std::string_view words) {
    std::vector<std::string_view> found;
    for (const Entry* entry : about(words)) found.push_back(entry->code);
    return found;
  };
  const auto holds = [&](std::string_view words, std::string_view code) { return std::ranges::count(codes(words), code) == 1; };
  EXPECT_TRUE(holds("out of memory", "LS-401"));
  EXPECT_TRUE(holds("Why does it HANG?", "LS-310"));
  EXPECT_TRUE(holds("nccl", "LS-302"));
  EXPECT_TRUE(codes("change").empty()) << "no word begins with it, though some hold it";
  EXPECT_TRUE(codes("all went well").empty());
  EXPECT_TRUE(codes("it is on").empty()) << "short words say nothing";
  EXPECT_TRUE(codes("").empty());
}

TEST(Catalog, AFullGpuIsToldOfShardsAndThePlan) {
  const std::string_view fix = known("LS-401").fix;
  EXPECT_NE(fix.find("--shard full"), fix.npos);
  EXPECT_NE(fix.find("`lockstep plan "), fix.npos);
  const auto code = [](std::string_view text) { return recognize(std::string(text))->code; };
  EXPECT_EQ(code("[memory] the machine's memory is full: not even one sample of 16 tokens fits on rank 1."), "LS-402");
  EXPECT_EQ(code("[memory] the device's memory is full: not even one sample of 16 tokens fits on rank 1."), "LS-401");
}

TEST(Catalog, ACodeInALogCounts) {
  const auto hits = scan("  LS-605 Ended from outside: `lockstep explain LS-605` says more.\nnothing\nTOOLS-4011 is none\n");
  ASSERT_EQ(hits.size(), 1u);
  EXPECT_EQ(hits[0].entry->code, "LS-605");
  EXPECT_TRUE(scan("").empty());
}

}  // namespace
}  // namespace lockstep::catalog
