#version 450
#extension GL_GOOGLE_include_directive : require
#include "push.glsl"
layout(location = 0) flat out vec4 color;

const uint kCellPixels = 8;
const uvec2 kCorners[6] = uvec2[](uvec2(0, 0), uvec2(1, 0), uvec2(0, 1), uvec2(1, 0), uvec2(1, 1), uvec2(0, 1));

// Two triangles a cell; every vertex of a cell does the cell's work.
void main() {
    const uint cell = gl_VertexIndex / 6;
    const uvec2 at = uvec2(cell % push.cells_x, cell / push.cells_x);
    const vec2 pixel = vec2((at + kCorners[gl_VertexIndex % 6]) * kCellPixels);
    gl_Position = vec4(pixel / vec2(push.width, push.height) * 2.0 - 1.0, 0.0, 1.0);
    color = shade(at, uvec2(push.cells_x, push.cells_y));
}
