# Lockstep in a container: one stage makes the wheel, the other installs it into a slim Python.
#   docker build -t lockstep:cuda .                       GPUs: torch brings CUDA 13, cuDNN and NCCL; the host brings the driver
#   docker build -t lockstep:cpu --build-arg CUDA=0 .     CPU ranks only
#   docker run --gpus all --shm-size 8g -v $PWD:/data lockstep:cuda train -f nano
FROM python:3.12-slim-bookworm AS build
ARG CUDA=1
# rustc of Debian 12 is too old for the crates; tools/setup.sh takes the newer one that Debian packages beside it. npm builds the page.
RUN apt-get update && apt-get install -y --no-install-recommends git g++ make binutils npm && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN make wheel CUDA=${CUDA}

FROM python:3.12-slim-bookworm
ARG CUDA=1
COPY --from=build /src/dist/*.whl /tmp/
# Ranks on a CPU need of torch's packages only the two that its CPU library is linked to.
RUN if [ "${CUDA}" = 0 ]; then \
      pip install --no-cache-dir --no-deps torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85 /tmp/*.whl; \
    else \
      pip install --no-cache-dir /tmp/*.whl; \
    fi && rm /tmp/*.whl
# The container runtime gives access to GPUs by these.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /data
ENTRYPOINT ["lockstep"]
CMD ["--help"]
