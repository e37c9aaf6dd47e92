// A kernel for lavapipe includes this before its push constants, in which addresses are 64-bit
// integers, and lavapipe.glsl after them.
#ifndef TSR_LAVAPIPE_EXTENSIONS_GLSL
#define TSR_LAVAPIPE_EXTENSIONS_GLSL

#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#if TSR_STORAGE16
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#extension GL_EXT_shader_16bit_storage : require
#endif

#include "params/types.h"
#undef TSR_ADDRESS
#define TSR_ADDRESS uint64_t

#endif
