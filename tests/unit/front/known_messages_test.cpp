// Messages that NCCL, CUDA, PyTorch, torchrun, accelerate, DeepSpeed, Unsloth, schedulers and systems really print, and what each tells of.
#include <gtest/gtest.h>

#include "front/catalog/catalog.h"

namespace lockstep::catalog {
namespace {

struct KnownMessage {
  const char* text;
  const char* code;
};

void expect_known(std::span<const KnownMessage> messages) {
  for (const KnownMessage& message : messages) {
    const Entry* entry = recognize(message.text);
    EXPECT_EQ(entry == nullptr ? "" : entry->code, message.code) << message.text;
  }
}

TEST(KnownMessages, Cuda) {
  static constexpr KnownMessage messages[] = {
      {"torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 64.00 MiB", "LS-401"},
      {"torch.cuda.OutOfMemoryError", "LS-401"},
      {"RuntimeError: CUDA error: out of memory", "LS-401"},
      {"RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "LS-401"},
      {"jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4294967296 bytes.", "LS-401"},
      {"ng3:3063028:3066152 [3] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'", "LS-401"},
      {"RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`", "LS-401"},
      {"cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", "LS-401"},
      {"RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", "LS-213"},
      {"RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle, opa, opb, m, n, k`", "LS-213"},
      {"RuntimeError: CUDA error: misaligned address", "LS-213"},
      {"RuntimeError: CUDA error: unspecified launch failure", "LS-213"},
      {"../aten/src/ATen/native/cuda/Indexing.cu:1292: indexSelectLargeIndex: block: [194,0,0], thread: [96,0,0] Assertion `srcIndex < "
       "srcSelectDimSize` failed.",
       "LS-213"},
      {"RuntimeError: CUDA error: an illegal instruction was encountered", "LS-213"},
      {"RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that "
       "might have already set an error? Error 802: system not yet initialized",
       "LS-215"},
      {"cudaErrorSystemNotReady: system not yet initialized", "LS-215"},
      {"UserWarning: CUDA initialization: CUDA unknown error - this may be due to an incorrectly set up environment", "LS-204"},
      {"Unable to determine the device handle for GPU 0000:3B:00.0: Unknown Error", "LS-204"},
      {"Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost. Reboot the system to recover this GPU", "LS-204"},
      {"kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "LS-204"},
      {"kernel: NVRM: Xid (PCI:0000:3b:00): 48, pid=1234, An uncorrectable double bit error (DBE) has been detected", "LS-211"},
      {"kernel: NVRM: Xid (PCI:0000:3b:00): 94, pid=1234, Contained: CE User Channel (0x9).", "LS-211"},
      {"kernel: NVRM: Xid (PCI:0000:3b:00): 31, pid=1234, MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted", "LS-213"},
      {"kernel: NVRM: Xid (PCI:0000:3b:00): 13, pid=1234, Graphics SM Warp Exception on (GPC 0, TPC 1): Out Of Range Address", "LS-213"},
      {"kernel: NVRM: Xid (PCI:0000:c3:00): 74, pid='<unknown>', NVLink: fatal error detected on link 5", "LS-216"},
      {"RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution", "LS-216"},
      {"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed "
       "and running.",
       "LS-201"},
      {"bash: nvidia-smi: command not found", "LS-201"},
      {"docker: Error response from daemon: could not select device driver \"\" with capabilities: [[gpu]].", "LS-201"},
      {"nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object file", "LS-201"},
      {"OSError: libcuda.so.1: cannot open shared object file: No such file or directory", "LS-201"},
      {"RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False.", "LS-201"},
      {"RuntimeError: Attempting to deserialize object on CUDA device 2 but torch.cuda.device_count() is 1.", "LS-205"},
      {"ValueError: Your setup doesn't support bf16/gpu. You need Ampere+ GPU with cuda>=11.0", "LS-212"},
      {"RuntimeError: FlashAttention only supports Ampere GPUs or newer.", "LS-212"},
      {"NVIDIA GeForce GTX 1080 with CUDA capability sm_61 is not compatible with the current PyTorch installation.", "LS-212"},
      {"nvcc fatal   : Unsupported gpu architecture 'compute_90'", "LS-212"},
      {"ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'", "LS-212"},
      {"RuntimeError: Triton Error [CUDA]: device kernel image is invalid", "LS-212"},
      {"The detected CUDA version (11.8) mismatches the version that was used to compile PyTorch (12.1).", "LS-107"},
      {"CUDA error: the provided PTX was compiled with an unsupported toolchain.", "LS-202"},
      {"RuntimeError: CUDA error: forward compatibility was attempted on non supported HW", "LS-202"},
      {"CUDA error: device(s) is/are busy or unavailable", "LS-206"},
  };
  expect_known(messages);
}

TEST(KnownMessages, Nccl) {
  static constexpr KnownMessage messages[] = {
      {"torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, unhandled system error (run "
       "with NCCL_DEBUG=INFO for details), NCCL version 2.19.3\nncclSystemError: System call (e.g. socket, malloc) or external library "
       "call failed or device error.\nLast error:\nError while creating shared memory segment /dev/shm/nccl-qpMKVR (size 5767520)",
       "LS-404"},
      {"torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77, invalid usage (run with "
       "NCCL_DEBUG=WARN for details), NCCL version 2.26.2\nncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast "
       "error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 3b000",
       "LS-301"},
      {"ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 'out of memory'", "LS-401"},
      {"ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 999 'unknown error'", "LS-302"},
      {"ncclInternalError: Internal check failed.\nLast error:\nNet : Call to ibv_reg_mr failed with error Cannot allocate memory",
       "LS-409"},
      {"box:1:9 [0] misc/ibvwrap.cc:252 NCCL WARN Call to ibv_create_qp failed with error Cannot allocate memory", "LS-409"},
      {"box:33:33 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found", "LS-307"},
      {"[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1873, OpType=ALLGATHER, NumelIn=1, NumelOut=8, "
       "Timeout(ms)=600000) ran for 600027 milliseconds before timing out.",
       "LS-303"},
      {"[rank0]:[E ProcessGroupNCCL.cpp:1152] [Rank 0] Timeout at NCCL work: 15, last enqueued NCCL work: 15, last completed NCCL work: "
       "14.",
       "LS-303"},
      {"[rank1]:[F ProcessGroupNCCL.cpp:1554] [PG ID 0 PG GUID 0(default_pg) Rank 1] Terminating the process after attempting to dump "
       "debug "
       "info, due to collective timeout or exception.",
       "LS-303"},
      {"[rank4]: HeartbeatMonitor: ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress", "LS-303"},
      {"terminate called after throwing an instance of 'c10::DistBackendError' what(): [Rank 1] NCCL watchdog thread terminated with "
       "exception: NCCL error: remote process exited or there was a network error",
       "LS-308"},
      {"RuntimeError: NCCL communicator was aborted on rank 1. Original reason for failure was: x", "LS-308"},
      {"ng3:3063025:3066048 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer ng3-ib<51159>", "LS-308"},
      {"node2:91:403 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 172.17.0.2<45681> failed : No route to host",
       "LS-307"},
      {"node2:91:403 [0] misc/socket.cc:519 NCCL WARN socketStartConnect: Connect to 10.1.2.3<45681> failed : Software caused connection "
       "abort",
       "LS-307"},
      {"node2:91:403 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<4791> with status=12 opcode=0 "
       "len=0 vendor err 129 (Recv)",
       "LS-317"},
      {"box:1:9 [0] NCCL INFO P2P is disabled between connected GPUs 1 and 0. You can repress this message with "
       "NCCL_IGNORE_DISABLED_P2P=1.",
       "LS-210"},
      {"ncclInvalidUsage ... Mismatched NCCL version detected : rank 0 21805 rank 1 22105", "LS-313"},
      {"RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint(...)", "LS-309"},
      {"RuntimeError: Distributed package doesn't have NCCL built in", "LS-106"},
      {"[comm] rank 0: all_reduce 7 of group world (gradients) failed: Timed out: rank 1 has moved nothing for 600 s", "LS-303"},
      {"[comm] rank 0: all_reduce 7 of group world (gradients) failed: rank 1 is gone", "LS-308"},
      {"[comm] rank 0: all_gather 7 of group world (weights) failed: rank 1 sent 160 bytes, 80 were expected", "LS-309"},
  };
  expect_known(messages);
}

TEST(KnownMessages, Launchers) {
  static constexpr KnownMessage messages[] = {
      {"torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed.", "LS-304"},
      {"[E socket.cpp:860] [c10d] The client socket has timed out after 60s while trying to connect to 192.0.0.1:1234", "LS-304"},
      {"torch.distributed.DistNetworkError: The client socket has timed out after 10000ms while trying to connect to (localhost, 44557).",
       "LS-304"},
      {"torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.", "LS-318"},
      {"torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError", "LS-318"},
      {"RuntimeError: connect() timed out. Original timeout was 60000 ms.", "LS-307"},
      {"torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: "
       "false, code: -98, name: EADDRINUSE, message: address already in use",
       "LS-305"},
      {"ConnectionError: Tried to launch distributed communication on port `29500`, but another process is utilizing it.", "LS-305"},
      {"OSError: [Errno 98] Address already in use", "LS-305"},
      {"[W socket.cpp:697] [c10d] The IPv6 network addresses of (node0, 29500) cannot be retrieved (gai error: -2 - Name or service not "
       "known).",
       "LS-306"},
      {"W1128 07:42:14.609000 17676 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 17776 closing signal SIGTERM",
       "LS-308"},
      {"torch.distributed.elastic.multiprocessing.api.SignalException: Process 4711 got signal: 15", "LS-605"},
      {"torch.distributed.elastic.multiprocessing.errors.ChildFailedError:", "LS-308"},
      {"torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL", "LS-605"},
      {"torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGSEGV", "LS-604"},
      {"E1128 07:42:15.588 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 1 (pid: 17774) of "
       "binary: /opt/conda/bin/python3.11",
       "LS-403"},
      {"  exitcode  : -9 (pid: 17774)", "LS-403"},
      {"  traceback : Signal 9 (SIGKILL) received by PID 17774", "LS-403"},
      {"  exitcode  : -7 (pid: 17774)", "LS-404"},
      {"  exitcode  : -11 (pid: 17774)", "LS-604"},
      {"  traceback : Signal 11 (SIGSEGV) received by PID 17774", "LS-604"},
      {"RuntimeError: Default process group has not been initialized, please make sure to call init_process_group.", "LS-311"},
      {"KeyError: 'LOCAL_RANK'", "LS-311"},
      {"srun: error: node3: task 5: Out Of Memory", "LS-403"},
      {"srun: error: node3: task 5: Bus error", "LS-404"},
      {"slurmstepd: error: *** STEP 123.0 ON node3 CANCELLED AT 2026-03-01T10:00:00 DUE TO PREEMPTION ***", "LS-605"},
      {"srun: error: Node failure on node3", "LS-316"},
      {"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
       "LS-316"},
      {"ORTE has lost communication with a remote daemon.", "LS-316"},
      {"Last State: Terminated  Reason: OOMKilled  Exit Code: 137", "LS-403"},
  };
  expect_known(messages);
}

TEST(KnownMessages, FormatsLoadersAndMeetings) {
  static constexpr KnownMessage messages[] = {
      {"RuntimeError: expected scalar type Half but found BFloat16", "LS-609"},
      {"ValueError: Attempting to unscale FP16 gradients.", "LS-609"},
      {"ValueError: FlashAttention only support fp16 and bf16 data type", "LS-609"},
      {"RuntimeError: DataLoader worker (pid 1234) is killed by signal: Killed.", "LS-403"},
      {"RuntimeError: DataLoader worker (pid 1234) is killed by signal: Bus error. It is possible that dataloader's workers are out of "
       "shared memory.",
       "LS-404"},
      {"RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: store_based_barrier_key:1 "
       "(world_size=2, worker_count=1, timeout=0:30:00)",
       "LS-318"},
      {"RuntimeError: Socket Timeout", "LS-318"},
      {"ssh: Could not resolve hostname node2: Name or service not known", "LS-306"},
      {"OSError: Can't load tokenizer for './model'. If you were trying to load it from 'https://huggingface.co/models', make sure you "
       "don't have a local directory with the same name.",
       "LS-501"},
  };
  expect_known(messages);
}

TEST(KnownMessages, OtherTrainers) {
  static constexpr KnownMessage messages[] = {
      {"AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * "
       "world_size 16 != 1 * 8 * 1",
       "LS-608"},
      {"ValueError: Please correct the following DeepSpeed config values that mismatch TrainingArguments values:\n- ds "
       "train_batch_size=64 vs hf train_batch_size (calculated)=32",
       "LS-608"},
      {"Exception: Installed CUDA version 11.8 does not match the version torch was compiled with 12.1, unable to compile cuda/cpp "
       "extensions without a matching cuda version.",
       "LS-107"},
      {"deepspeed.ops.op_builder.builder.MissingCUDAException: CUDA_HOME does not exist, unable to compile CUDA op(s)", "LS-107"},
      {"RuntimeError: Error building extension 'fused_adam'", "LS-107"},
      {"ImportError: /root/.cache/torch_extensions/py310_cu121/cpu_adam/cpu_adam.so: cannot open shared object file: No such file or "
       "directory",
       "LS-107"},
      {"AttributeError: 'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'", "LS-107"},
      {"ModuleNotFoundError: No module named 'flash_attn'", "LS-107"},
      {"ImportError: FlashAttention2 has been toggled on, but it cannot be used due to the following error: the package flash_attn seems "
       "to be not installed.",
       "LS-107"},
      {"ModuleNotFoundError: No module named 'deepspeed'", "LS-107"},
      {"ImportError: Using `bitsandbytes` 4-bit quantization requires the latest version of bitsandbytes: `pip install -U bitsandbytes`",
       "LS-107"},
      {"RuntimeError: CUDA Setup failed despite GPU being available. Please run the following command: python -m bitsandbytes", "LS-107"},
      {"ImportError: Unsloth: Please install unsloth_zoo via `pip install unsloth_zoo`", "LS-107"},
      {"NotImplementedError: Unsloth cannot find any torch accelerator? You need a GPU.", "LS-201"},
      {"RuntimeError: Unsloth currently does not support multi GPU setups - but we are working on it!", "LS-205"},
      {"NotImplementedError: Unsloth: google/gemma-9-9b-it not supported yet!", "LS-502"},
      {"RuntimeError: Unsloth: No config file found - are you sure the `model_name` is correct?", "LS-501"},
      {"RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:1 and cuda:0!", "LS-607"},
      {"ValueError: You can't train a model that has been loaded in 8-bit or 4-bit precision on a different device than the one you're "
       "training on.",
       "LS-607"},
      {"ValueError: You can't train a model that has been loaded in 8-bit precision with `device_map='auto'` in any distributed mode.",
       "LS-607"},
      {"Some modules are dispatched on the CPU or the disk. Make sure you have enough GPU RAM to fit the quantized model.", "LS-401"},
      {"RuntimeError: Expected to mark a variable ready only once. This error is caused by one of the following reasons", "LS-603"},
      {"RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn", "LS-603"},
      {"RuntimeError: DDP expects same model across all ranks, but Rank 0 has 148 params, while rank 1 has inconsistent 0 params.",
       "LS-602"},
      {"RuntimeError: [1]: params[0] in this process with sizes [768] appears not to match sizes of the same param in process 0.",
       "LS-602"},
      {"ValueError: Cannot use chat template functions because tokenizer.chat_template is not set and no template argument was passed!",
       "LS-507"},
      {"jinja2.exceptions.TemplateError: Conversation roles must alternate user/assistant/user/assistant/...", "LS-507"},
      {"ValueError: Asking to pad but the tokenizer does not have a padding token.", "LS-507"},
      {"ValueError: Tokenizer class LlamaTokenizerX does not exist or is not currently imported.", "LS-502"},
      {"ValueError: The checkpoint you are trying to load has model type `qwen9` but Transformers does not recognize this architecture.",
       "LS-502"},
      {"OSError: You are trying to access a gated repo.", "LS-506"},
      {"huggingface_hub.errors.HfHubHTTPError: 403 Client Error: Forbidden for url", "LS-506"},
      {"requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/api/models/x", "LS-506"},
      {"OSError: meta-llama/Llama-9 does not appear to have a file named config.json.", "LS-506"},
      {"OSError: Error no file named pytorch_model.bin, model.safetensors found in directory /models/x.", "LS-501"},
      {"_pickle.UnpicklingError: invalid load key, 'v'.", "LS-501"},
      {"RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory", "LS-504"},
      {"RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 576 vs 470", "LS-405"},
      {"datasets.exceptions.DatasetGenerationError: An error occurred while generating the dataset", "LS-503"},
      {"pyarrow.lib.ArrowInvalid: JSON parse error: Invalid value. in row 0", "LS-503"},
      {"json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)", "LS-503"},
      {"[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 1, reducing to 1", "LS-601"},
      {"{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1.9e-05, 'epoch': 0.02}", "LS-601"},
      {"RuntimeError: Function 'MulBackward0' returned nan values in its 0th output.", "LS-601"},
      {"step: 120  loss:  nan  grad_norm:  nan", "LS-601"},
  };
  expect_known(messages);
}

TEST(KnownMessages, Systems) {
  static constexpr KnownMessage messages[] = {
      {"./train.sh: line 12: 48213 Killed                  python train.py", "LS-403"},
      {"[123456.7] Out of memory: Killed process 4711 (python3) total-vm:91234kB, anon-rss:812345kB", "LS-403"},
      {"[123456.7] Memory cgroup out of memory: Killed process 4711 (lockstep-worker)", "LS-403"},
      {"./train.sh: line 12: 48213 Bus error               (core dumped) python train.py", "LS-404"},
      {"./train.sh: line 12: 48213 Segmentation fault      (core dumped) python train.py", "LS-604"},
      {"RuntimeError: unable to open shared memory object </torch_4711_1> in read-write mode", "LS-404"},
      {"ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).", "LS-404"},
      {"RuntimeError: received 0 items of ancdata", "LS-406"},
      {"OSError: [Errno 122] Disk quota exceeded", "LS-405"},
      {"OSError: [Errno 30] Read-only file system: '/runs'", "LS-407"},
      {"OpenBLAS blas_thread_init: pthread_create failed for thread 12 of 64: Resource temporarily unavailable", "LS-411"},
      {"RuntimeError: can't start new thread", "LS-411"},
      {"libgomp: Thread creation failed: Resource temporarily unavailable", "LS-411"},
      {"OSError: [Errno 12] Cannot allocate memory", "LS-402"},
      {"numpy._core._exceptions._ArrayMemoryError: Unable to allocate 12.0 GiB for an array", "LS-402"},
      {"ImportError: /lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.32' not found", "LS-104"},
      {"ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory", "LS-104"},
      {"OSError: undefined symbol: _ZN3c104cuda9SetDeviceEi", "LS-103"},
      {"ImportError: undefined symbol: ncclCommRegister", "LS-104"},
      {"Illegal instruction (core dumped)", "LS-108"},
  };
  expect_known(messages);
}

// What people's logs are full of while all is well: nothing is made of it.
TEST(KnownMessages, HarmlessLines) {
  for (const char* line : {
           "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system being overloaded",
           "box:4711:4711 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.2<0>",
           "box:4711:4711 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
           "box:4711:4801 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.",
           "box:4711:4801 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
           "box:4711:4801 [0] NCCL INFO transport/p2p.cc:204 -> 1",
           "box:4711:4801 [0] NCCL INFO Channel 00 : 0[1020] -> 2[1040] via SHM/direct/direct",
           "box:4711:4801 [0] NCCL INFO comm 0x5581 rank 0 nranks 2 cudaDev 0 busId 4000 commId 0x1 - Init COMPLETE",
           "box:4711:4801 [0] NCCL INFO threadThresholds 8/8/64 | 16/8/64 | 512 | 512",
           "NCCL version 2.28.9+cuda13.0",
           "{'loss': 1.8332, 'grad_norm': 0.71, 'learning_rate': 1.9e-05, 'epoch': 0.02}",
           "{'eval_loss': 1.81, 'eval_runtime': 12.1, 'eval_samples_per_second': 82.1, 'epoch': 1.0}",
           "100%|##########| 500/500 [12:01<00:00,  1.44s/it]",
           "==((====))==  Unsloth - 2x faster free finetuning | Num GPUs = 1",
           "Unsloth: Will patch your computer to enable 2x faster free finetuning.",
           "[2024-06-29 03:11:02,545] [INFO] [real_accelerator.py:203:get_accelerator] Setting ds_accelerator to cuda (auto detect)",
           "Token indices sequence length is longer than the specified maximum sequence length for this model (5321 > 4096).",
           "Loading checkpoint shards: 100%|##########| 4/4 [00:08<00:00,  2.11s/it]",
           "Some weights of LlamaForCausalLM were not initialized from the model checkpoint and are newly initialized",
           "`use_cache=True` is incompatible with gradient checkpointing. Setting `use_cache=False`.",
           "I1128 07:42:14.609000 17676 torch/distributed/run.py:766] Starting elastic_operator with launch configs:",
           "GPU memory: 62.1 GiB of 79.2 GiB used, 12 % reserved",
           "wandb: Tracking run with wandb version 0.25.1",
           "The quick brown fox refuses every connection to the disk in memory of an error that killed nobody.",
           "frame #17: <unknown function> + 0x5aee23a (0x733a96c4323a in "
           "/usr/local/lib/python3.10/dist-packages/torch/lib/libtorch_cpu.so)",
           "  File \"/usr/lib/python3.11/site-packages/torch/nn/modules/module.py\", line 1511, in _wrapped_call_impl",
           "step 120  loss 2.4411  lr 3.0e-04  41.2k tok/s  banana nano finance",
       }) {
    const Entry* entry = recognize(line);
    EXPECT_EQ(entry, nullptr) << line << "\n  told of " << entry->code;
    EXPECT_TRUE(scan(line).empty()) << line;
  }
}

}  // namespace
}  // namespace lockstep::catalog
