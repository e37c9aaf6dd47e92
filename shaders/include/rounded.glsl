// Keeps a product apart from an addition that follows, so that both are rounded on every device.
// `precise` demands this too, but NVIDIA's driver 580.159.04 fuses scale · x + shift all the same.
#ifndef TSR_ROUNDED_GLSL
#define TSR_ROUNDED_GLSL

// Returns the product. `zero` must be 0. It must not be a constant if the driver may fuse
// operations: the compiler cannot fuse a product that goes through integer arithmetic with the
// addition, but it would remove an exclusive-or with a constant 0.
float tsr_rounded(float product, uint zero)
{
    return uintBitsToFloat(floatBitsToUint(product) ^ zero);
}

#endif
