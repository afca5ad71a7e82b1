// What belongs to other trainers: their packages, and how they spread a model and a batch.
#include "front/catalog/groups.h"

namespace lockstep::catalog {

std::vector<Entry> about_other_trainers() {
  return {
      {.code = "LS-107",
       .title = "A package of another trainer is missing or does not fit",
       .symptom =
           "'No module named flash_attn' (deepspeed, bitsandbytes, ...), 'CUDA_HOME does not exist', 'Error building extension ...'.",
       .cause =
           "Those trainers load or compile packages of their own at the start, which must fit Python, PyTorch and the CUDA toolkit of the "
           "machine.",
       .fix = "lockstep needs none of them: fused attention, 4 and 8 bits, sharding and 8-bit optimizers are built in; `lockstep config "
              "import "
              "FILE` takes the settings along",
       .patterns = {"no module named 'flash_attn",
                    "no module named 'deepspeed",
                    "no module named 'bitsandbytes",
                    "no module named 'xformers",
                    "no module named 'apex",
                    "no module named 'unsloth",
                    "no module named 'liger_kernel",
                    "no module named 'trl",
                    "flashattention2 has been toggled on, but it cannot be used",
                    "requires the latest version of bitsandbytes",
                    "cuda setup failed despite gpu being available",
                    "please install unsloth_zoo",
                    "cuda_home does not exist",
                    "cuda_home environment variable is not set",
                    "error building extension",
                    "cpu_adam.so: cannot open shared object file",
                    "object has no attribute 'ds_opt_adam'",
                    "does not match the version torch was compiled with",
                    "mismatches the version that was used to compile pytorch",
                    "flash_attn_2_cuda"}},
      {.code = "LS-607",
       .title = "A model is split over GPUs by hand",
       .symptom =
           "'Expected all tensors to be on the same device, but found at least two devices', 'You can't train a model that has been loaded "
           "in 8-bit or 4-bit precision on a different device'.",
       .cause = "device_map='auto' deals a model's layers out to GPUs within one process, while several processes train, or code puts "
                "tensors on "
                "a GPU of its own choice.",
       .fix = "leave device_map out: `lockstep train` gives every GPU a rank, and parallel.shard=full splits what does not fit on one",
       .patterns = {"expected all tensors to be on the same device", "on a different device than the one you're training on",
                    "with `device_map='auto'` in any distributed mode"}},
      {.code = "LS-608",
       .title = "Batch sizes do not fit together",
       .symptom = "'train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size'.",
       .cause = "DeepSpeed is told the global batch and its factors, and they do not multiply: often because the number of ranks is "
                "another than "
                "meant, as when the script was started without its launcher.",
       .fix =
           "here only --batch-size (of a rank) and --grad-accum are said, and ranks multiply; `lockstep train --dry-run` shows the global "
           "batch",
       .patterns = {"check batch related parameters", "train_batch_size is not equal", "mismatch trainingarguments values"}},
      {.code = "LS-609",
       .title = "Number formats are mixed",
       .symptom =
           "'expected scalar type Half but found BFloat16', 'Attempting to unscale FP16 gradients', 'FlashAttention only support fp16 and "
           "bf16 data type'.",
       .cause =
           "Weights, adapters, activations and the loss scaler were each given a format by hand (torch_dtype, fp16=True, autocast), and "
           "they do not go together.",
       .fix = "here one setting says it, --dtype bf16 (or f16, f32): masters, adapters and loss scale follow from it",
       .patterns = {"expected scalar type half but found", "expected scalar type bfloat16 but found",
                    "expected scalar type float but found", "attempting to unscale fp16 gradients",
                    "flashattention only support fp16 and bf16", "must have the same dtype, but got"}},
  };
}

}  // namespace lockstep::catalog
