#version 450
#extension GL_GOOGLE_include_directive : require
#include "push.glsl"
layout(location = 0) out vec4 color;
void main() { color = shade(uvec2(gl_FragCoord.xy), uvec2(push.width, push.height)); }
