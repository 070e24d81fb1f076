// Shared by all shaders; bench/render/expected.cc has the same arithmetic.
layout(push_constant) uniform Push {
    uint iterations;
    uint seed;
    uint width;
    uint height;
    uint cells_x;
    uint cells_y;
} push;

// The load: a chain of dependent fused multiply-adds. It converges, so roundings do not grow.
vec4 shade(uvec2 at, uvec2 size) {
    float a = (float(at.x) + 0.5) / float(size.x);
    float b = (float(at.y) + 0.5) / float(size.y);
    for (uint i = 0; i < push.iterations; ++i) {
        a = fma(a, 0.999, b * 0.001);
        b = fma(b, 0.998, a * 0.002);
    }
    return vec4(a, b, float((7 * at.x + 13 * at.y + push.seed) & 255u) / 255.0, 1.0);
}
