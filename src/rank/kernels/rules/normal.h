// Normal numbers by (key, index), the same bits on a CPU and on a GPU.
// Philox 4x32-10 gives four words for each group of four indices; Box-Muller turns them into four normals. log, sin and cos
// are polynomials in explicit fused multiply-adds: no library and no compiler flag can make two devices differ.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "rank/kernels/rules/both.h"

namespace lockstep::kernels {
namespace {

struct Four {
  float value[4];
};

LOCKSTEP_BOTH inline float negative_log(float u) {  // -ln u for u in (0, 1]
  std::uint32_t bits;
  std::memcpy(&bits, &u, 4);
  const std::uint32_t shifted = bits - 0x3f3504f3u;  // mantissa into [sqrt(1/2), sqrt(2))
  const float e = float(std::int32_t(shifted) >> 23);
  const std::uint32_t mantissa = (shifted & 0x007fffffu) + 0x3f3504f3u;
  float m;
  std::memcpy(&m, &mantissa, 4);
  const float f = m - 1.0f;
  const float z = f * f;
  float p = 7.0376836292e-2f;
  p = fmaf(p, f, -1.1514610310e-1f);
  p = fmaf(p, f, 1.1676998740e-1f);
  p = fmaf(p, f, -1.2420140846e-1f);
  p = fmaf(p, f, 1.4249322787e-1f);
  p = fmaf(p, f, -1.6668057665e-1f);
  p = fmaf(p, f, 2.0000714765e-1f);
  p = fmaf(p, f, -2.4999993993e-1f);
  p = fmaf(p, f, 3.3333331174e-1f);
  const float fz = f * z;
  float tail = fmaf(p, fz, e * -2.12194440e-4f);
  tail = fmaf(-0.5f, z, tail);
  const float head = f + tail;
  return -fmaf(e, 0.693359375f, head);
}

LOCKSTEP_BOTH inline void normal_pair(std::uint32_t a, std::uint32_t b, float* first, float* second) {
  const float u = fmaf(float(a), 2.3283064365386963e-10f, 1.1641532182693481e-10f);  // (a + 1/2) / 2^32
  const float length = negative_log(u < 1.0f ? u : 1.0f);
  const float radius = sqrtf(2.0f * (length > 0.0f ? length : 0.0f));
  // The top two bits choose a quadrant, the rest an angle within 45 degrees of its axis.
  const std::int32_t rest = std::int32_t(b & 0x3fffffffu) - (1 << 29);
  const float r = float(rest) * 1.4629180792671596e-9f;  // pi / 2^31
  const float z = r * r;
  float s = fmaf(-1.9515295891e-4f, z, 8.3321608736e-3f);
  s = fmaf(s, z, -1.6666654611e-1f);
  const float rz = r * z;
  s = fmaf(s, rz, r);
  float c = fmaf(2.443315711809948e-5f, z, -1.388731625493765e-3f);
  c = fmaf(c, z, 4.166664568298827e-2f);
  const float zz = z * z;
  c = fmaf(c, zz, fmaf(-0.5f, z, 1.0f));
  const std::uint32_t quadrant = b >> 30;
  const float x = quadrant & 1u ? s : c;
  const float y = quadrant & 1u ? c : s;
  const bool flip_x = quadrant == 1u || quadrant == 2u;
  const bool flip_y = quadrant >= 2u;
  *first = radius * (flip_x ? -x : x);
  *second = radius * (flip_y ? -y : y);
}

LOCKSTEP_BOTH inline Four normal_group(std::uint64_t key, std::uint64_t group) {
  std::uint32_t c0 = std::uint32_t(group), c1 = std::uint32_t(group >> 32), c2 = 0, c3 = 0;
  std::uint32_t k0 = std::uint32_t(key), k1 = std::uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t(0xD2511F53u) * c0, p1 = std::uint64_t(0xCD9E8D57u) * c2;
    const std::uint32_t n0 = std::uint32_t(p1 >> 32) ^ c1 ^ k0, n2 = std::uint32_t(p0 >> 32) ^ c3 ^ k1;
    c1 = std::uint32_t(p1);
    c3 = std::uint32_t(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  Four out;
  normal_pair(c0, c1, &out.value[0], &out.value[1]);
  normal_pair(c2, c3, &out.value[2], &out.value[3]);
  return out;
}

}  // namespace
}  // namespace lockstep::kernels
