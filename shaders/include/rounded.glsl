// Keeps a product apart from an addition that follows, so that both are rounded on every device.
// `precise` demands this too, but NVIDIA's driver 580.159.04 fuses scale · x + shift all the same.
#ifndef TSR_ROUNDED_GLSL
#define TSR_ROUNDED_GLSL

// Returns the product. `zero` must be 0, but not a constant, unless the driver fuses nothing
// anyway: the compiler cannot fuse what goes through integer arithmetic, but would remove an ^ with
// 0.
float tsr_rounded(float product, uint zero)
{
    return uintBitsToFloat(floatBitsToUint(product) ^ zero);
}

#endif
